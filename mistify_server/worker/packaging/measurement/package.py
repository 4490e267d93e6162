"""Measurement of a package: latency and accuracy in LiteRT, and costs from its files."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from executors.data import Dataset, HeldOut
from executors.outputs.objectives import OutputObjective
from mistify.costs.budget import Costs, at_threads, conditions_of, latency_axis
from mistify.costs.catalogue import HOST, is_host
from mistify.costs.energy import ENERGY, EnergyOrigin, origin_on
from mistify.costs.quantization import Quantization
from mistify.jobs.network_graph import NetworkGraph
from mistify.jobs.package_spec import PackageSpec
from mistify.package.manifest import MeasuredLatency, branch_signature, fixed_batch_signature
from mistify_server.tasks.sources import DataSource
from mistify_server.tasks.tasks import PackageTask
from mistify_server.worker.packaging.conversion.result import Conversion
from mistify_server.worker.packaging.graphs import network_graph
from mistify_server.worker.packaging.layers import profile_of
from mistify_server.worker.packaging.measurement.accuracy import MeasuredAccuracy, measure_accuracy
from mistify_server.worker.packaging.measurement.causes import cause_of_loss, largest_scale
from mistify_server.worker.packaging.measurement.comparison import COMPARED_EXAMPLES, compare
from mistify_server.worker.packaging.measurement.file_costs import stored_costs
from mistify_server.worker.packaging.measurement.isolated import latencies_of, latency_of
from mistify_server.worker.packaging.measurement.layer_errors import layer_errors
from mistify_server.worker.packaging.measurement.remarks import Served, compression_losses, drawbacks
from mistify_server.worker.packaging.tflite.flatbuffer import measured_compression
from mistify_server.worker.packaging.tflite.isolation import LiteRtError
from mistify_server.worker.packaging.tflite.memory import memory_bytes
from mistify_server.worker.packaging.tflite.runner import SIGNATURE, Runner, signatures
from mistify_server.worker.packaging.tflite.tensor_errors import TensorErrors

#: Notes on packages with pseudo-labelled test data, or with only pseudo-labelled validation data.
_GENERATED: Final = (
    "is the agreement with the source on generated inputs: on real inputs, it may be much lower"
)
_UNLABELLED: Final = (
    "is the agreement with the source on your unlabelled inputs: the accuracy of the source itself is unknown"
)
_CHOSEN_BY_AGREEMENT: Final = "was chosen by its agreement with the source, without labels"

#: Notes on limits on energy, by the basis of the energies on some hardware.
_ENERGIES: Final = {
    EnergyOrigin.FITTED: (
        "is judged by the energy fitted to measurements of {}: its watts times the predicted latency"
    ),
    EnergyOrigin.PUBLISHED: (
        "is judged by the energy on {} from published ratios, which compare networks but are no joules of it"
    ),
}


@dataclass(frozen=True)
class Measurement:
    """The latency, accuracy and memory of a network or branch, in LiteRT on this machine.

    Attributes:
        latency: Latency of an inference.
        memory_bytes: Size of constants and activations in bytes, according to the file.
        validation: The accuracy for choosing packages and branches.
        test: The accuracy for the report.
        float32_ms: Latency of the same network in float32, if that was measured as well.
    """

    latency: MeasuredLatency
    memory_bytes: float
    validation: MeasuredAccuracy
    test: MeasuredAccuracy
    float32_ms: float | None = None


@dataclass(frozen=True)
class PackageMeasurements:
    """All measurements of a package.

    Attributes:
        branches: One per branch, cheapest first; a single one without branches.
        default: Index of the goal's own network among them.
        costs: Costs of the files by axis: size, memory, and the achieved compression.
        note: Remarks on costs that were predicted instead of measured, missing gains from the precision, and
            losses from compression; may be empty.
        graph: The operators of the goal's own network with their errors; None if there are too many.
    """

    branches: tuple[Measurement, ...]
    default: int
    costs: Costs
    note: str
    graph: NetworkGraph | None

    @property
    def own(self) -> Measurement:
        """Return the measurements of the goal's own network."""
        return self.branches[self.default]


def measure(
    conversion: Conversion, task: PackageTask, objectives: Mapping[str, OutputObjective], held_out: HeldOut
) -> PackageMeasurements:
    """Measure a package after comparing it with its original.

    Args:
        conversion: The networks of the package.
        task: The package task, with the costs and accuracy of the checkpoint.
        objectives: Output -> its objective.
        held_out: The held-out data for comparison and accuracy.

    Raises:
        MistifyError: CORRUPT_PACKAGE, its outputs differ from the original's.
    """
    is_float32 = task.spec.quantization.precision is Quantization.NONE
    own_float32 = None if is_float32 else conversion.float32()
    # The other branches have no form in float32 to be compared with.
    float32 = None if conversion.branches else own_float32
    branches = tuple(
        _measure_branch(conversion, branch, task, objectives, held_out, float32=float32)
        for branch in range(len(conversion.originals))
    )
    default = conversion.branches.default if conversion.branches else 0
    network = conversion.networks.serve
    compression = measured_compression(network) if task.spec.compression else {}
    return PackageMeasurements(
        branches,
        default,
        costs={**_costs(conversion, task.spec), **compression},
        note=_note(conversion, task, branches[default], compression, held_out.validation, float32=float32),
        graph=_graph(conversion, task, held_out.validation, float32=own_float32),
    )


def _graph(
    conversion: Conversion, task: PackageTask, validation: Dataset, *, float32: bytes | None
) -> NetworkGraph | None:
    """Return the operators of the goal's own network, with their errors if it has a float32 form."""
    network = conversion.networks.serve
    signature = branch_signature(conversion.branches.default) if conversion.branches else SIGNATURE
    errors = TensorErrors({}, 0)
    if float32 is not None:
        inputs = {name: array[:COMPARED_EXAMPLES] for name, array in validation.inputs.items()}
        with suppress(LiteRtError):  # a package without this diagnosis is better than none
            errors = layer_errors(network, float32, inputs, signature)
    return network_graph(
        network,
        signature,
        conversion.layers,
        profile_of(task),
        errors,
    )


def _measure_branch(
    conversion: Conversion,
    branch: int,
    task: PackageTask,
    objectives: Mapping[str, OutputObjective],
    held_out: HeldOut,
    *,
    float32: bytes | None,
) -> Measurement:
    """Compare and measure one branch, or a network without branches."""
    network = conversion.networks.serve
    signature = branch_signature(branch) if conversion.branches else None
    fixed = fixed_batch_signature(signature or SIGNATURE)
    precision = task.spec.quantization.precision
    with _runnable(network, precision, conversion.layers):
        runner = Runner(network, signature or SIGNATURE)
        single = Runner(network, fixed) if fixed in signatures(network) else None
        compare(conversion.originals[branch], runner, held_out.validation, precision, single)
    latency, float32_ms = _latencies(network, float32, task.spec.threads, signature)
    validation, test = (
        measure_accuracy(runner, examples, objectives, task.recipe.data) for examples in held_out
    )
    memory = memory_bytes(network, (signature,) if signature else ())
    return Measurement(latency, memory, validation, test, float32_ms)


def _latencies(
    network: bytes, float32: bytes | None, threads: int, signature: str | None
) -> tuple[MeasuredLatency, float | None]:
    """Return the latency of a network, and in milliseconds that of its form in float32, measured together.

    Raises:
        LiteRtError: LiteRT cannot run one of them.
    """
    if float32 is None:
        return latency_of(network, threads, signature=signature), None
    both = latencies_of({"package": network, "float32": float32}, threads)
    latency, before = (
        both.get(key) or latency_of(content, threads)
        for key, content in (("package", network), ("float32", float32))
    )
    return latency, before.median_ms


@contextmanager
def _runnable(network: bytes, precision: Quantization, layers: Collection[str]) -> Iterator[None]:
    """Explain why LiteRT rejects an integer network: it lacks kernels for some of its scales.

    Raises:
        LiteRtError: LiteRT rejects the network.
    """
    try:
        yield
    except LiteRtError as error:
        if not precision.integer:
            raise
        raise LiteRtError("one with integers that LiteRT rejects", largest_scale(network, layers)) from error


def _costs(conversion: Conversion, spec: PackageSpec) -> dict[str, float]:
    """Return the costs that are read from the package, by axis."""
    branches = conversion.branches.networks if conversion.branches else ()
    return stored_costs(
        conversion.networks.serve,
        spec.quantization,
        spec.threads,
        [branch_signature(number) for number in range(len(branches))],
    )


def _note(
    conversion: Conversion,
    task: PackageTask,
    own: Measurement,
    stored: Costs,
    validation: Dataset,
    *,
    float32: bytes | None,
) -> str:
    """Describe unmeasured costs, missing gains from the precision, and losses from compression.

    Args:
        stored: The achieved compression.
        validation: A part of it is used to explain losses from precisions.
        float32: The network in float32; None for packages in float32 and with branches.
    """
    metric, compression = task.recipe.data.validation_metric, task.spec.compression
    precision = task.spec.quantization.precision
    notes = [*_predictions(task), _on_pseudo_labels(task.recipe.data)]
    if compression is not None:
        notes.append(compression_losses(compression, stored, conversion.accuracy, task.accuracy, metric))
    if float32 is not None and own.float32_ms is not None:
        package = Served(conversion.networks.serve, own.latency.median_ms, own.validation.accuracy)
        before = Served(float32, own.float32_ms, conversion.accuracy)
        inputs = {name: array[:COMPARED_EXAMPLES] for name, array in validation.inputs.items()}
        cause = cause_of_loss(precision, float32, inputs, conversion.layers)
        notes.append(drawbacks(precision, package, before, metric, own.latency.threads, cause=cause))
    return "; ".join(filter(None, notes))


def _on_pseudo_labels(data: DataSource) -> str:
    """Describe where pseudo-labels affect measurements; empty if they do not."""
    if not data.labelled:
        return _UNLABELLED if data.test is None else _GENERATED
    return "" if data.has_validation_labels else _CHOSEN_BY_AGREEMENT


def _predictions(task: PackageTask) -> Iterator[str]:
    """Yield the evidence for limits on energy, and on latency on hardware other than this machine."""
    for profile in task.recipe.hardware.values():
        axis = latency_axis(profile.name)
        if axis in task.spec.budget and not is_host(profile.name):
            yield (
                f"is judged by the latency on {conditions_of(axis).hardware} predicted from "
                f"{profile.evidence}, without measurements there"
            )
    precision = task.spec.quantization.precision
    # If two profiles have the same axis, the later one determines the cost.
    profiles = {ENERGY.named(profile.name, precision): profile for profile in task.recipe.hardware.values()}
    for axis in profiles.keys() & task.spec.budget.keys():
        yield _ENERGIES[origin_on(profiles[axis])].format(conditions_of(axis).hardware)


def measured_here(latency: MeasuredLatency, precision: Quantization) -> dict[str, float]:
    """Return the latency on this machine by axis, both with and without the precision.

    Args:
        latency: Latency in milliseconds for a number of threads.
    """
    host = at_threads(HOST.name, latency.threads)
    return dict.fromkeys((latency_axis(host), latency_axis(host, precision)), latency.median_ms)
