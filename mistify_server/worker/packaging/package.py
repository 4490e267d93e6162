"""Making a package, and checking it against its checkpoint before it counts (paper 7)."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from itertools import repeat
from pathlib import Path
from typing import Any, TypeAlias

import keras
import numpy as np

from executors.data import Array, Dataset
from executors.structure import analyse
from executors.structure.signature import output_names, signature_of
from executors.tfmot import compressed, quantization_aware
from executors.training.evaluation import call, evaluate
from executors.training.objectives import Objective, empty_classes, named, objectives_of
from executors.training.setup import TrainingSetup
from mistify.costs.axes import known_axes
from mistify.costs.budget import Costs, latency_axis
from mistify.costs.catalogue import HOST
from mistify.costs.network import NetworkCost
from mistify.costs.profiles import Profile, by_name
from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import BranchFigures
from mistify.package.manifest import (
    MANIFEST,
    Branch,
    Manifest,
    MeasuredLatency,
    PackagedFile,
    Versions,
    branch_signature,
)
from mistify.package.training import TRAIN
from mistify_server.store.artifacts import Artifacts
from mistify_server.tasks.results import PackageResult
from mistify_server.tasks.tasks import PackageTask
from mistify_server.worker.packaging.conversion.branches import Branches, BranchNetwork, convert_branches
from mistify_server.worker.packaging.conversion.converter import (
    REPRESENTATIVE_EXAMPLES,
    Function,
    convert,
    convert_function,
)
from mistify_server.worker.packaging.conversion.saved_model import SAVED_MODEL, zipped_saved_model
from mistify_server.worker.packaging.conversion.trainable import Trainable, convert_trainable
from mistify_server.worker.packaging.measurement.accuracy import MeasuredAccuracy, measure_accuracy
from mistify_server.worker.packaging.measurement.gain import Served, compression_losses, drawbacks
from mistify_server.worker.packaging.measurement.latency import measure_latency
from mistify_server.worker.packaging.tflite.flatbuffer import measured_compression
from mistify_server.worker.packaging.tflite.runner import SIGNATURE, Arrays, Runner

SERVE = "serve.tflite"

#: Examples that checkpoint and package are compared on, and how far float32 outputs may differ.
_COMPARED_EXAMPLES = 64
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Package:
    """The files of a package, and what its manifest says."""

    files: dict[str, bytes]
    manifest: Manifest


def package_result(package: Package, artifacts: Artifacts) -> PackageResult:
    """Put the files of a package into the artifacts, and return them with its figures."""
    manifest = package.manifest
    return PackageResult(
        files={name: artifacts.put(content, Path(name).suffix) for name, content in package.files.items()},
        achieved=manifest.achieved,
        measured=manifest.measured,
        accuracy=manifest.accuracy,
        note=manifest.note,
        branches=tuple(
            BranchFigures(branch.share, branch.achieved, branch.measured, branch.accuracy)
            for branch in manifest.branches
        ),
    )


#: What makes outputs of inputs, by their names.
Original: TypeAlias = Callable[[Arrays], Arrays]


@dataclass(frozen=True)
class Converted:
    """A network in LiteRT, and what it was made from.

    Attributes:
        network: At the precision that is asked for.
        inputs: The names of its inputs in order.
        outputs: The names of its outputs in order.
        originals: What it has to compute, each of its branches.
        float32: Converts the same in float32.
        accuracy: In float32.
        cost: What it costs.
        note: What else there is to say of it.
        training: What trains it on a device; None where nothing does.
        branches: The networks that it can switch between; None where it cannot.
        others: Further files of the package, by name.
    """

    network: bytes
    inputs: Sequence[str]
    outputs: Sequence[str]
    originals: Sequence[Original]
    float32: Callable[[], bytes]
    accuracy: float
    cost: NetworkCost
    note: str = ""
    training: Trainable | None = None
    branches: Branches | None = None
    others: Mapping[str, bytes] = field(default_factory=dict)


def make_package(
    model: keras.Model,
    task: PackageTask,
    setup: TrainingSetup,
    training_steps: int = 0,
    branches: Branches | None = None,
) -> Package:
    """Convert a checkpoint, compare, measure, and describe it.

    Args:
        model: The checkpoint of the task.
        task: What is asked for.
        setup: What the checkpoint was trained with and is measured on.
        training_steps: Of quantization-aware training and of compression, where they are asked for.
        branches: The networks of the task's branches.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the package computes something else than its checkpoint; INVALID_MODEL,
            quantization-aware training or compression is asked for and cannot treat the model.
    """
    accuracy, settings = task.accuracy, task.settings
    if settings.compression is not None:
        model = compressed(model, settings.compression, setup, training_steps, task.seed)
        accuracy = evaluate(model, setup.test, task.data.metric)
    networks = branches.networks if branches else ()
    objectives = objectives_of(model, setup.train)
    models = [branch.model for branch in networks] or [model]
    made = _convert(model, task, setup, training_steps, branches)
    converted = Converted(
        network=made.network,
        inputs=[tensor.name for tensor in model.inputs],
        outputs=output_names(model),
        originals=[partial(_run, one) for one in models],
        float32=partial(convert, model),
        accuracy=accuracy,
        cost=analyse(model).network(),
        note=_untaught(model, setup.train),
        training=made,
        branches=branches,
        others={SAVED_MODEL: zipped_saved_model(branches)} if branches and settings.saved_model else {},
    )
    return described(converted, task, objectives, setup.test)


def described(
    converted: Converted, task: PackageTask, objectives: Mapping[str, Objective], test: Dataset
) -> Package:
    """The package of a network, with what is measured of it.

    Raises:
        MistifyError: CORRUPT_PACKAGE, it computes something else than what it was made from.
    """
    network, settings = converted.network, task.settings
    precision, branches = settings.quantization.precision, converted.branches
    networks = branches.networks if branches else ()
    default = branches.default if branches else 0
    profiles = tuple(task.hardware.values())
    numbers = range(len(converted.originals))
    each = [_measure(converted, number, task, objectives, test) for number in numbers]
    measured = each[default]
    served = Served(network, measured.latency.median_ms, measured.accuracy.accuracy)
    found = {} if settings.compression is None else measured_compression(network)
    counted = {
        name: cost for axis in known_axes() for name, cost in axis.measured(network, precision).items()
    }
    memory = branches.memory(precision) if branches else {}
    runner = Runner(network)
    trained = converted.training or Trainable(network)
    files = {SERVE: network, **({TRAIN: trained.training} if trained.training else {}), **converted.others}
    manifest = Manifest(
        job=settings.job_id,
        goal=settings.goal_id,
        budget=settings.budget,
        metric=task.data.metric,
        accuracy_target=settings.accuracy_target,
        achieved={**task.costs, **memory, **counted, **found},
        measured=on_all_hardware(measured.latency.median_ms, converted.cost, profiles),
        accuracy=measured.accuracy.accuracy,
        accuracy_examples=measured.accuracy.examples,
        latency=measured.latency,
        inputs=tuple(runner.inputs[name] for name in converted.inputs),
        outputs=tuple(runner.outputs[name] for name in converted.outputs),
        quantization=precision,
        branches=tuple(map(_branch, networks, each, repeat(profiles))),
        default_branch=default,
        compression=settings.compression,
        note=_note(converted, served, found, task),
        tunable=dict(trained.tunable),
        training=trained.record,
        training_note=trained.note,
        versions=Versions(
            mistify=version("mistify-porting"), tensorflow=version("tensorflow"), keras=version("keras")
        ),
        files={
            name: PackagedFile(size=len(content), sha256=sha256(content).hexdigest())
            for name, content in files.items()
        },
        created=datetime.now(UTC),
    )
    description = (manifest.model_dump_json(indent=2) + "\n").encode()
    return Package({**files, MANIFEST: description}, manifest)


def _note(converted: Converted, package: Served, found: Costs, task: PackageTask) -> str:
    """What is to be said of a network, what was lost by the compression, and not gained by the precision."""
    notes = [converted.note]
    compression, precision = task.settings.compression, task.settings.quantization.precision
    if compression is not None:
        notes.append(
            compression_losses(compression, found, converted.accuracy, task.accuracy, task.data.metric)
        )
    if precision is not Quantization.NONE and not converted.branches:
        network = converted.float32()
        float32 = Served(network, measure_latency(network).median_ms, converted.accuracy)
        notes.append(drawbacks(precision, package, float32, task.data.metric))
    return "; ".join(filter(None, notes))


def _untaught(model: keras.Model, train: Dataset) -> str:
    """What to tell of classes that a network was not trained on; empty where there are none."""
    empty = empty_classes(signature_of(model), train)
    return f"no training example of {named(empty)}: it may have been unlearned" if empty else ""


@dataclass(frozen=True)
class _Measured:
    latency: MeasuredLatency
    accuracy: MeasuredAccuracy


def _measure(
    converted: Converted, branch: int, task: PackageTask, objectives: Mapping[str, Objective], test: Dataset
) -> _Measured:
    """Compare a package, or a branch of it, with what it was made from, and measure it."""
    signature = branch_signature(branch) if converted.branches else None
    runner = Runner(converted.network, signature or SIGNATURE)
    _compare(converted.originals[branch], runner, test, task.settings.quantization.precision)
    latency = measure_latency(converted.network, signature=signature)
    return _Measured(latency, measure_accuracy(runner, test, objectives, task.data.metric))


def _branch(branch: BranchNetwork, measured: _Measured, profiles: tuple[Profile, ...]) -> Branch:
    """What a manifest says of a branch."""
    cost = analyse(branch.model).network()
    return Branch(
        share=branch.share,
        achieved=dict(branch.costs),
        measured=on_all_hardware(measured.latency.median_ms, cost, profiles),
        accuracy=measured.accuracy.accuracy,
        latency=measured.latency,
    )


def on_all_hardware(
    measured_ms: float, network: NetworkCost, profiles: Iterable[Profile]
) -> dict[str, float]:
    """What an inference takes on this machine, and, from there, on the other hardware, by axis.

    Args:
        measured_ms: On this machine.
        network: What it costs.
        profiles: Of the hardware, this machine's own among them.
    """
    others = by_name(profiles)
    host = others.pop(HOST.name, HOST)
    deviation = measured_ms / host.latency_ms(network)
    there = {latency_axis(name): p.like_host(deviation).latency_ms(network) for name, p in others.items()}
    return {latency_axis(HOST.name): measured_ms, **there}


def _convert(
    model: keras.Model,
    task: PackageTask,
    setup: TrainingSetup,
    training_steps: int,
    branches: Branches | None,
) -> Trainable:
    settings, quantization = task.settings, task.settings.quantization
    if branches:
        scales = representative(setup.train) if quantization.precision.integer else None
        return Trainable(convert_branches(branches, quantization, scales))
    match quantization.precision:
        case Quantization.NONE if settings.compression is None and settings.tuning.trainable != "none":
            objectives = objectives_of(model, setup.train, setup.settings.class_weights)
            some = setup.test.subset(np.arange(min(_COMPARED_EXAMPLES, len(setup.test))))
            return convert_trainable(model, objectives, settings.tuning, some.inputs)
        case Quantization.INT8:
            return Trainable(convert(model, quantization, representative(setup.train)))
        case Quantization.INT8_QAT:
            aware = quantization_aware(model, setup, training_steps, task.seed)
            forward = partial(_call_in_order, aware)
            return Trainable(convert_function(Function.like(model, forward, aware), quantization))
        case _:
            return Trainable(convert(model, quantization))


def _call_in_order(model: Any, *inputs: Any) -> Any:
    return model(inputs[0] if len(inputs) == 1 else list(inputs), training=False)


def representative(train: Dataset) -> Mapping[str, Array]:
    """Some training examples, in random order: files may be sorted."""
    some = np.random.default_rng(0).permutation(len(train))[:REPRESENTATIVE_EXAMPLES]
    return train.subset(some).inputs


def _run(model: keras.Model, inputs: Arrays) -> dict[str, Array]:
    return {name: np.asarray(output) for name, output in call(model, inputs, training=False).items()}


def _compare(original: Original, runner: Runner, test: Dataset, precision: Quantization) -> None:
    """Run what was converted, and the package, on the same examples, one by one and as a batch.

    Float32 outputs have to be equal, others of one shape: how far off they may be their accuracy tells.
    """
    some = runner.examples_at_once(_COMPARED_EXAMPLES)
    examples = {name: array[:some] for name, array in test.inputs.items()}
    expected = original(examples)
    for count in (some, 1):
        found = runner({name: array[:count] for name, array in examples.items()})
        for name, outputs in expected.items():
            _require_equal(found[name], outputs[:count], precision)


def _require_equal(found: Array, wanted: Array, precision: Quantization) -> None:
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
