"""What a precision did not bring: packages that are not faster, or less accurate, than in float32."""

from collections.abc import Iterator
from dataclasses import dataclass

from ai_edge_litert.tools import flatbuffer_utils

from mistify.metric import Metric
from mistify.quantization import Quantization
from mistify_server.packaging.litert import measure_latency

#: Accuracy that a precision may cost without a word, as a share.
_TOLERATED_LOSS = 0.01

#: By how much a mean squared error may grow without a word, as a share of it.
_TOLERATED_GROWTH = 0.1

#: They change how a number is written, and compute nothing.
_CASTS = ("QUANTIZE", "DEQUANTIZE")


@dataclass(frozen=True)
class Served:
    """A network in LiteRT, with its latency in milliseconds and its accuracy."""

    network: bytes
    latency_ms: float
    accuracy: float


def drawbacks(precision: Quantization, package: Served, float32: Served, metric: Metric) -> str:
    """What to tell of a package against the float32 one of the same checkpoint; empty if it is better."""
    told = []
    if package.latency_ms >= float32.latency_ms:
        told.append(
            f"not faster than in float32 ({package.latency_ms:.3g} ms against {float32.latency_ms:.3g} ms) "
            f"because {_why_not_faster(package.network)}"
        )
    if _is_worse(package.accuracy, float32.accuracy, metric):
        advice = "; int8-qat may lose less" if precision is Quantization.INT8 else ""
        against = f"{metric.shown(package.accuracy)} against {metric.shown(float32.accuracy)}"
        told.append(f"{metric} {against} in float32{advice}")
    return f"as {precision.value}: {'; '.join(told)}" if told else ""


def _is_worse(figure: float, float32: float, metric: Metric) -> bool:
    """Whether a precision cost more than a point, or a tenth of a mean squared error."""
    if metric.is_share:
        return float32 - figure > _TOLERATED_LOSS
    return figure > (1 + _TOLERATED_GROWTH) * float32


def float_operators(network: bytes) -> tuple[list[str], int]:
    """The names of the operators that compute in float32, and how many compute at all."""
    computing = list(_computing(network))
    return [name for name, floats in computing if floats], len(computing)


def _computing(network: bytes) -> Iterator[tuple[str, bool]]:
    """The operators that make numbers of numbers, and whether they read and write floats alone."""
    model = flatbuffer_utils.read_model_from_bytearray(network)
    for graph in model.subgraphs:
        for operator in graph.operators:
            name = flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex) or "CUSTOM"
            read = [graph.tensors[index] for index in operator.inputs if index >= 0]
            types = [
                flatbuffer_utils.type_to_name(tensor.type)
                for tensor in (*read, *(graph.tensors[index] for index in operator.outputs))
            ]
            if name not in _CASTS and types[-1] in ("FLOAT32", "INT8"):
                yield name, "INT8" not in types


def _why_not_faster(network: bytes) -> str:
    floats, count = float_operators(network)
    if floats:
        return f"{len(floats)} of its {count} operators compute in float32 ({', '.join(sorted(set(floats)))})"
    share = _overhead(network)
    if share >= 0.5:
        return f"the network is too small: {share:.0%} of an inference is not spent on computing"
    return (
        "integers are no faster on this machine: all operators compute with them, and "
        f"{1 - share:.0%} of an inference is spent there"
    )


def _overhead(network: bytes) -> float:
    """The part of an inference that a second example in its batch does not take once more."""
    one, two = (measure_latency(network, batch=batch).median_ms for batch in (1, 2))
    return min(max(2 * one - two, 0.0) / one, 1.0)
