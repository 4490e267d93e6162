"""The costs that are read off a converted network, whatever the forecast (paper 4.1)."""

from collections.abc import Collection

from mistify.costs.axes import axis_of, known_axes
from mistify.costs.budget import MEMORY, memory_axis, quantity_of
from mistify.costs.quantization import Quantization
from mistify_server.worker.packaging.tflite.memory import memory_bytes


def stored_costs(
    network: bytes, precision: Quantization, threads: int = 1, branches: Collection[str] = ()
) -> dict[str, float]:
    """Return memory, size and plug-ins' measures of a file, by axis.

    Args:
        network: A `.tflite`.
        precision: The precision of the file, which names the axes.
        threads: Number of threads of LiteRT.
        branches: Signatures of its branches, where it has some.

    Raises:
        MistifyError: INTERNAL, a plug-in returns something that is no cost.
    """
    costs = {memory_axis(precision): memory_bytes(network, branches)}
    for axis in known_axes():
        costs |= axis.measured(network, precision, threads)
    return costs


def is_stored(axis: str) -> bool:
    """Check whether the cost on an axis is read off the file once there is one.

    Raises:
        MistifyError: INVALID_CONFIG, it is an axis of a plug-in that is not installed here.
    """
    return quantity_of(axis) == MEMORY or axis_of(axis).measure is not None
