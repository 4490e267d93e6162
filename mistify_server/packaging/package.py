"""Making a package, and checking it against its checkpoint before it counts (paper 7)."""

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version

import keras
import numpy as np

from executors.data import Dataset
from executors.evaluation import call
from mistify.budget import SIZE, Budget, Costs
from mistify.errors import ErrorCode, MistifyError
from mistify.manifest import MANIFEST, Manifest, PackagedFile, Versions
from mistify.metric import Metric
from mistify_server.packaging import litert

SERVE = "serve.tflite"

#: Examples that checkpoint and package are compared on, and how far their outputs may differ.
_COMPARED_EXAMPLES = 64
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class PackageOrder:
    """What a package is made for, and what its checkpoint was measured to be."""

    job_id: str
    goal_id: str
    budget: Budget
    accuracy_target: float | None
    costs: Costs
    accuracy: float
    metric: Metric = Metric.ACCURACY


@dataclass(frozen=True)
class Package:
    """The files of a package, and what its manifest says."""

    files: dict[str, bytes]
    manifest: Manifest


def make_package(model: keras.Model, order: PackageOrder, test: Dataset) -> Package:
    """Convert a checkpoint, compare, measure, and describe it.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the package computes something else than its checkpoint.
    """
    network = litert.convert(model)
    _compare(model, network, test)
    inputs, outputs = litert.tensors(network)
    manifest = Manifest(
        job=order.job_id,
        goal=order.goal_id,
        budget=dict(order.budget),
        metric=order.metric,
        accuracy_target=order.accuracy_target,
        achieved={**order.costs, SIZE: float(len(network))},
        accuracy=order.accuracy,
        latency=litert.measure_latency(network),
        inputs=inputs,
        outputs=outputs,
        versions=Versions(
            mistify=version("mistify-porting"), tensorflow=version("tensorflow"), keras=version("keras")
        ),
        files={SERVE: PackagedFile(size=len(network), sha256=sha256(network).hexdigest())},
        created=datetime.now(UTC),
    )
    described = (manifest.model_dump_json(indent=2) + "\n").encode()
    return Package({SERVE: network, MANIFEST: described}, manifest)


def _compare(model: keras.Model, network: bytes, test: Dataset) -> None:
    """Run checkpoint and package on the same examples, one by one and as a batch."""
    (name, inputs), *_ = test.inputs.items()
    examples = inputs[:_COMPARED_EXAMPLES].astype(np.float32)
    expected, *_ = map(np.asarray, call(model, {name: examples}, training=False).values())
    for given, wanted in ((examples, expected), (examples[:1], expected[:1])):
        found = litert.run(network, given)
        difference = float(np.abs(found - wanted).max()) if found.shape == wanted.shape else float("inf")
        if not difference <= _TOLERANCE * max(1.0, float(np.abs(wanted).max())):
            raise MistifyError(
                ErrorCode.CORRUPT_PACKAGE,
                f"the package's outputs {found.shape} differ from its checkpoint's {wanted.shape} by "
                f"{difference:.2g}; expected {_TOLERANCE:.0e} at most",
            )
