"""Remarks on a package that gained nothing through its precision, or lost accuracy by compression."""

from collections.abc import Iterator
from dataclasses import dataclass

from mistify.config.data.metric import Metric
from mistify.config.package.compression import VALUES, ZEROS, CompressionConfig
from mistify.costs.budget import Costs
from mistify.costs.quantization import Quantization
from mistify.wording import counted
from mistify_server.worker.packaging.measurement.isolated import latency_of
from mistify_server.worker.packaging.tflite.flatbuffer import operators

#: Accuracy that a precision may cost without a remark, as a share.
_TOLERATED_LOSS = 0.01

#: By how much a mean squared error may grow without a remark, as a share of it.
_TOLERATED_GROWTH = 0.1

#: By how much the share of zeros may fall short without a remark.
_TOLERATED_SHORTAGE = 0.01

#: Operators that change how a number is stored, and compute nothing.
_CASTS = ("QUANTIZE", "DEQUANTIZE")


@dataclass(frozen=True)
class Served:
    """A network in LiteRT, with its latency in milliseconds and its accuracy."""

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
    """Return a remark on the disadvantages of a package against the float32 one of the same checkpoint.

    Args:
        package: Measurements of the package.
        float32: Measurements of the same network in float32.
        metric: The metric of both accuracies.
        threads: Number of threads of both latencies.
        cause: Cause of a loss of accuracy, if it is known (`cause_of_loss`).

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
        remarks.append(f"{metric} {against} in float32{f', as {cause}' if cause else advice}")
    return f"as {precision.value}: {'; '.join(remarks)}" if remarks else ""


def compression_losses(
    config: CompressionConfig, stored: Costs, accuracy: float, before: float, metric: Metric
) -> str:
    """Return a remark on a compression that is less than was asked for, or that cost accuracy.

    Args:
        config: The compression that was asked for.
        stored: The compression in the package, by axis.
        accuracy: Accuracy of the compressed network.
        before: Accuracy of its checkpoint.
        metric: The metric of both accuracies.

    Returns:
        The remark; empty if there is nothing to say.
    """
    remarks = []
    if config.sparsity is not None and stored[ZEROS] < config.sparsity - _TOLERATED_SHORTAGE:
        remarks.append(f"{stored[ZEROS]:.0%} of the weights are zero: there are layers that cannot be pruned")
    if config.clusters is not None and stored[VALUES] > config.clusters:
        remarks.append(
            f"a kernel has {stored[VALUES]:,.0f} values: of a layer that cannot be clustered, or with a "
            "scale for each channel"
        )
    if _is_worse(accuracy, before, metric):
        remarks.append(f"{metric} {metric.shown(accuracy)} against {metric.shown(before)} before")
    return f"with {config}: {'; '.join(remarks)}" if remarks else ""


def _is_worse(figure: float, float32: float, metric: Metric) -> bool:
    """Return whether a precision cost more than a point, or a tenth of a mean squared error."""
    if metric.is_share:
        return float32 - figure > _TOLERATED_LOSS
    return figure > (1 + _TOLERATED_GROWTH) * float32


def float_operators(network: bytes) -> tuple[list[str], int]:
    """Return the names of the operators that compute in float32, and how many operators compute."""
    computing = list(_computing(network))
    return [name for name, floats in computing if floats], len(computing)


def _computing(network: bytes) -> Iterator[tuple[str, bool]]:
    """Yield the names of the operators that compute, and whether they read and write floats only."""
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
        "integers are no faster on this machine: all operators compute with them, and "
        f"{1 - share:.0%} of an inference is spent there"
    )


def _overhead(network: bytes, threads: int) -> float:
    """Return the share of an inference that does not grow with the examples in its batch."""
    one, two = (latency_of(network, threads, batch).median_ms for batch in (1, 2))
    return min(max(2 * one - two, 0.0) / one, 1.0)
