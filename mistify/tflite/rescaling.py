"""Networks whose linear operators are scaled and shifted, without conversion."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mistify.tflite.combining import read_network
from mistify.tflite.constants import drop_unused_buffers
from mistify.tflite.linear import linear_operator, transform
from mistify.tflite.packing import packed

__all__ = ["OperatorPlaces", "rescaled"]

Floats = npt.NDArray[np.float32]

#: Number of the graph and of the operator in it, for each graph that has a copy of an operator.
OperatorPlaces = Sequence[tuple[int, int]]


def rescaled(
    network: bytes, operators: Sequence[OperatorPlaces], scales: Sequence[Floats], shifts: Sequence[Floats]
) -> bytes:
    """Return a network whose operators compute `scale * y + shift` in place of y.

    Args:
        network: Content of a `.tflite` file.
        operators: Linear operators, each with its places.
        scales: Factor of each channel of each operator.
        shifts: Summand of each channel of each operator.

    Raises:
        ValueError: There is no linear operator with constants of its own at a place.
    """
    model = read_network(network)
    for places, scale, shift in zip(operators, scales, shifts, strict=True):
        operators_at = [linear_operator(model, model.subgraphs[graph], number) for graph, number in places]
        linear = [one for one in operators_at if one is not None]
        if len(linear) < len(operators_at):
            raise ValueError(f"no linear operator at {places[operators_at.index(None)]}")
        transform(model, linear, scale, shift)
    drop_unused_buffers(model)
    return packed(model)
