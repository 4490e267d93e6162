"""Remarks on a package without gains from its precision, or with losses from compression."""

from collections.abc import Iterator
from dataclasses import dataclass

from mistify.config.data.metric import Metric
from mistify.config.package.compression import VALUES, ZEROS, CompressionConfig
from mistify.costs.budget import Costs
from mistify.costs.quantization import Quantization
from mistify.wording import counted
from mistify_server.worker.packaging.measurement.isolated import latency_of
from mistify_server.worker.packaging.tflite.flatbuffer import operators

#: Loss of accuracy from a precision that needs no remark.
_TOLERATED_LOSS = 0.01

#: Relative increase of a mean squared error that needs no remark.
_TOLERATED_GROWTH = 0.1

#: Shortfall in the share of zeros that needs no remark.
_TOLERATED_SHORTAGE = 0.01

#: Operators that only convert between number formats.
_CASTS = ("QUANTIZE", "DEQUANTIZE")


@dataclass(frozen=True)
class Served:
    """A LiteRT network with its latency in milliseconds and its accuracy."""

    network: bytes
    latency_ms: float
    accuracy: float


def drawbacks(
    precision: Quantization,
    package: Served,
    float32: Served,
    metric: Metric,
    threads: int = 1,
    *,
    cause: str = "",
) -> str:
    """Return a remark on disadvantages of a package compared with float32.

    Args:
        package: Measurements of the package.
        float32: Measurements of the same network in float32.
        metric: The metric of both accuracies.
        threads: Number of threads of both latencies.
        cause: Cause of a loss of accuracy, if known (`cause_of_loss`).

    Returns:
        A remark on latency and accuracy; empty if both are good enough.
    """
    remarks = []
    if package.latency_ms >= float32.latency_ms:
        remarks.append(
            f"not faster than in float32 ({package.latency_ms:.3g} ms against {float32.latency_ms:.3g} ms) "
            f"because {_why_not_faster(package.network, threads)}"
        )
    if _is_worse(package.accuracy, float32.accuracy, metric):
        advice = "; int8-qat may lose less" if precision is Quantization.INT8 else ""
        against = f"{metric.shown(package.accuracy)} against {metric.shown(float32.accuracy)}"
        remarks.append(f"{metric} {against} in float32{f', because {cause}' if cause else advice}")
    return f"as {precision.value}: {'; '.join(remarks)}" if remarks else ""


def compression_losses(
    config: CompressionConfig, stored: Costs, accuracy: float, before: float, metric: Metric
) -> str:
    """Return a remark on a compression that falls short of the request, or that cost accuracy.

    Args:
        config: The requested compression.
        stored: The achieved compression in the package, by axis.
        accuracy: Accuracy of the compressed network.
        before: Accuracy of the checkpoint.
        metric: The metric of both accuracies.

    Returns:
        The remark; may be empty.
    """
    remarks = []
    if config.sparsity is not None and stored[ZEROS] < config.sparsity - _TOLERATED_SHORTAGE:
        remarks.append(f"{stored[ZEROS]:.0%} of the weights are zero: some layers cannot be pruned")
    if config.clusters is not None and stored[VALUES] > config.clusters:
        remarks.append(
            f"a kernel has {stored[VALUES]:,.0f} values: its layer cannot be clustered, or it has a "
            "scale for each channel"
        )
    if _is_worse(accuracy, before, metric):
        remarks.append(f"{metric} {metric.shown(accuracy)} against {metric.shown(before)} before")
    return f"with {config}: {'; '.join(remarks)}" if remarks else ""


def _is_worse(figure: float, float32: float, metric: Metric) -> bool:
    """Return whether the loss exceeds one percentage point, or a tenth of a mean squared error."""
    if metric.is_share:
        return float32 - figure > _TOLERATED_LOSS
    return figure > (1 + _TOLERATED_GROWTH) * float32


def float_operators(network: bytes) -> tuple[list[str], int]:
    """Return the names of the operators that compute in float32, and the number of computing operators."""
    computing = list(_computing(network))
    return [name for name, floats in computing if floats], len(computing)


def _computing(network: bytes) -> Iterator[tuple[str, bool]]:
    """Yield the names of the computing operators, and whether they only read and write floats."""
    for operator in operators(network):
        types = [tensor.type for tensor in (*operator.inputs, *operator.outputs)]
        if operator.name not in _CASTS and types[-1] in ("FLOAT32", "INT8"):
            yield operator.name, "INT8" not in types


def _why_not_faster(network: bytes, threads: int) -> str:
    floats, count = float_operators(network)
    if floats:
        compute = "computes" if len(floats) == 1 else "compute"
        names = ", ".join(sorted(set(floats)))
        return f"{len(floats)} of its {counted(count, 'operator')} {compute} in float32 ({names})"
    share = _overhead(network, threads)
    if share >= 0.5:
        return f"the network is too small: {share:.0%} of an inference is not spent on computing"
    return (
        "integers are no faster on this machine: all operators use them, and "
        f"{1 - share:.0%} of an inference is spent computing"
    )


def _overhead(network: bytes, threads: int) -> float:
    """Return the share of an inference that does not grow with the batch size."""
    one, two = (latency_of(network, threads, batch).median_ms for batch in (1, 2))
    return min(max(2 * one - two, 0.0) / one, 1.0)
