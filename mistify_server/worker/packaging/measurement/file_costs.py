"""Costs that are read from a converted network instead of predicted (paper 4.1)."""

from collections.abc import Collection

from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.axes import axis_of, known_axes
from mistify.costs.budget import MEMORY, memory_axis, quantity_of
from mistify_server.worker.packaging.tflite.memory import memory_bytes


def stored_costs(
    network: bytes, quantization: QuantizationConfig, threads: int = 1, branches: Collection[str] = ()
) -> dict[str, float]:
    """Return memory, size and plug-in costs of a file, by axis.

    Args:
        network: A `.tflite`.
        quantization: The precision of the file and the types of its inputs, which name the axes.
        threads: Number of LiteRT threads.
        branches: Signatures of its branches, if any.

    Raises:
        MistifyError: INTERNAL, a plug-in returns an invalid cost.
    """
    precision = quantization.precision
    memory = memory_axis(precision, integer_inputs=quantization.integer_inputs)
    costs = {memory: memory_bytes(network, branches)}
    for axis in known_axes():
        costs |= axis.measured(network, precision, threads)
    return costs


def is_stored(axis: str) -> bool:
    """Check whether the cost on an axis is read from the file once it exists.

    Raises:
        MistifyError: INVALID_CONFIG, the axis belongs to a plug-in that is not installed here.
    """
    return quantity_of(axis) == MEMORY or axis_of(axis).measure is not None
