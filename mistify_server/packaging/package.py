"""Making a package, and checking it against its checkpoint before it counts (paper 7)."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import keras
import numpy as np

from executors.data import Array, Dataset
from executors.evaluation import call
from executors.objectives import objectives_of
from executors.quantization_aware import quantization_aware
from executors.signature import output_names
from executors.training import Schooling
from mistify.budget import Budget, Costs, hardware_of, latency_axis, size_axis
from mistify.errors import ErrorCode, MistifyError
from mistify.hardware import HOST
from mistify.manifest import MANIFEST, Branch, Manifest, MeasuredLatency, PackagedFile, Versions
from mistify.metric import Metric
from mistify.quantization import Quantization, QuantizationConfig
from mistify_server.packaging import litert
from mistify_server.packaging.accuracy import MeasuredAccuracy, measure_accuracy
from mistify_server.packaging.branching import Branches, BranchNetwork, convert_branches
from mistify_server.packaging.conversion import (
    REPRESENTATIVE_EXAMPLES,
    Function,
    convert,
    convert_function,
)
from mistify_server.packaging.gain import Served, drawbacks

SERVE = "serve.tflite"

#: Examples that checkpoint and package are compared on, and how far float32 outputs may differ.
_COMPARED_EXAMPLES = 64
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class PackageOrder:
    """What a package is made for, and what its checkpoint was measured to be.

    `predicted` are its latencies by axis, of the host among them, before any correction by measurement.
    `training_steps` and `seed` are of quantization-aware training, where that is asked for. `branches` are
    what the package can switch between, the checkpoint among them.
    """

    job_id: str
    goal_id: str
    budget: Budget
    accuracy_target: float | None
    quantization: QuantizationConfig
    costs: Costs
    accuracy: float
    metric: Metric
    predicted: Costs
    training_steps: int = 0
    seed: int = 0
    branches: Branches | None = None


@dataclass(frozen=True)
class Package:
    """The files of a package, and what its manifest says."""

    files: dict[str, bytes]
    manifest: Manifest


def make_package(model: keras.Model, order: PackageOrder, schooling: Schooling) -> Package:
    """Convert a checkpoint, compare, measure, and describe it.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the package computes something else than its checkpoint; INVALID_MODEL,
            quantization-aware training is asked for and cannot treat the model.
    """
    precision = order.quantization.precision
    network = _convert(model, order, schooling)
    networks = order.branches.networks if order.branches else ()
    default = order.branches.default if order.branches else 0
    models = [branch.model for branch in networks] or [model]
    each = [_measure(network, one, order, schooling, number) for number, one in enumerate(models)]
    measured = each[default]
    note = ""
    if precision is not Quantization.NONE and not networks:
        served = Served(network, measured.latency.median_ms, measured.accuracy.accuracy)
        note = _drawbacks(precision, served, model, order)
    size = {size_axis(precision): float(len(network))}
    runner = litert.Runner(network, default)
    manifest = Manifest(
        job=order.job_id,
        goal=order.goal_id,
        budget=dict(order.budget),
        metric=order.metric,
        accuracy_target=order.accuracy_target,
        achieved={**order.costs, **(order.branches.memory(precision) if order.branches else {}), **size},
        measured=on_all_hardware(measured.latency.median_ms, order.predicted),
        accuracy=measured.accuracy.accuracy,
        accuracy_examples=measured.accuracy.examples,
        latency=measured.latency,
        inputs=tuple(runner.inputs[tensor.name] for tensor in model.inputs),
        outputs=tuple(runner.outputs[name] for name in output_names(model)),
        quantization=precision,
        branches=tuple(map(_branch, networks, each)),
        default_branch=default,
        note=note,
        versions=Versions(
            mistify=version("mistify-porting"), tensorflow=version("tensorflow"), keras=version("keras")
        ),
        files={SERVE: PackagedFile(size=len(network), sha256=sha256(network).hexdigest())},
        created=datetime.now(UTC),
    )
    described = (manifest.model_dump_json(indent=2) + "\n").encode()
    return Package({SERVE: network, MANIFEST: described}, manifest)


@dataclass(frozen=True)
class _Measured:
    latency: MeasuredLatency
    accuracy: MeasuredAccuracy


def _measure(
    network: bytes, model: keras.Model, order: PackageOrder, schooling: Schooling, branch: int
) -> _Measured:
    """Compare a package, or a branch of it, with its checkpoint, and measure it."""
    runner = litert.Runner(network, branch)
    _compare(model, runner, schooling.test, order.quantization.precision)
    latency = litert.measure_latency(network, branch=branch)
    objectives = objectives_of(model, schooling.train)
    return _Measured(latency, measure_accuracy(runner, schooling.test, objectives, order.metric))


def _branch(branch: BranchNetwork, measured: _Measured) -> Branch:
    """What a manifest says of a branch."""
    predicted = {axis: cost for axis, cost in branch.costs.items() if hardware_of(axis)}
    return Branch(
        share=branch.share,
        achieved=dict(branch.costs),
        measured=on_all_hardware(measured.latency.median_ms, predicted),
        accuracy=measured.accuracy.accuracy,
        latency=measured.latency,
    )


def _drawbacks(precision: Quantization, package: Served, model: keras.Model, order: PackageOrder) -> str:
    """What to tell of a package against the float32 one, which is as accurate as the checkpoint."""
    network = convert(model)
    float32 = Served(network, litert.measure_latency(network).median_ms, order.accuracy)
    return drawbacks(precision, package, float32, order.metric)


def on_all_hardware(measured_ms: float, predicted: Costs) -> dict[str, float]:
    """What an inference takes on this machine, and, from there, on the other hardware.

    How much longer it takes here than the profile of this machine says, it takes there than theirs say.
    """
    host = latency_axis(HOST.name)
    ratio = measured_ms / predicted[host] if host in predicted else 1.0
    return {**{axis: ratio * value for axis, value in predicted.items()}, host: measured_ms}


def _convert(model: keras.Model, order: PackageOrder, schooling: Schooling) -> bytes:
    quantization = order.quantization
    if order.branches:
        return convert_branches(order.branches, quantization)
    match quantization.precision:
        case Quantization.INT8:
            return convert(model, quantization, _representative(schooling.train))
        case Quantization.INT8_QAT:
            aware = quantization_aware(model, schooling, order.training_steps, order.seed)
            forward = partial(_call_in_order, aware)
            return convert_function(Function.like(model, forward, aware), quantization)
        case _:
            return convert(model, quantization)


def _call_in_order(model: Any, *inputs: Any) -> Any:
    return model(inputs[0] if len(inputs) == 1 else list(inputs), training=False)


def _representative(train: Dataset) -> Mapping[str, Array]:
    """Some training examples, in random order: files may be sorted."""
    some = np.random.default_rng(0).permutation(len(train))[:REPRESENTATIVE_EXAMPLES]
    return train.subset(some).inputs


def _compare(model: keras.Model, runner: litert.Runner, test: Dataset, precision: Quantization) -> None:
    """Run checkpoint and package on the same examples, one by one and as a batch.

    Float32 outputs have to be equal, others of one shape: how far off they may be their accuracy tells.
    """
    examples = {name: array[:_COMPARED_EXAMPLES] for name, array in test.inputs.items()}
    expected = {name: np.asarray(output) for name, output in call(model, examples, training=False).items()}
    for count in (_COMPARED_EXAMPLES, 1):
        found = runner({name: array[:count] for name, array in examples.items()})
        for name, outputs in expected.items():
            _require_equal(found[name], outputs[:count], precision)


def _require_equal(found: litert.Array, wanted: litert.Array, precision: Quantization) -> None:
    same_shape = found.shape == wanted.shape
    difference = float(np.abs(found - wanted).max()) if same_shape else float("inf")
    tolerance = _TOLERANCE * max(1.0, float(np.abs(wanted).max()))
    if precision is not Quantization.NONE:
        tolerance = sys.float_info.max
    if not difference <= tolerance:
        raise MistifyError(
            ErrorCode.CORRUPT_PACKAGE,
            f"the package's outputs {found.shape} differ from its checkpoint's {wanted.shape} by "
            f"{difference:.2g}; expected {tolerance:.0e} at most",
        )
