"""Where the file of a network stores its constants."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

__all__ = ["StoredConstant", "stored_constants"]


class StoredConstant(NamedTuple):
    """A constant in the file of a network.

    Attributes:
        offset: Position of its first byte in the file.
        content: Its bytes.
    """

    offset: int
    content: bytes


def stored_constants(network: bytes) -> dict[tuple[int, int], StoredConstant]:
    """Return the constants of a network by the numbers of the graph and of the tensor in it.

    Args:
        network: Content of a `.tflite` file.
    """
    model = schema.Model.GetRootAs(network, 0)
    start = _address(np.frombuffer(network, np.uint8))
    constants = {}
    for number, graph in enumerate(map(model.Subgraphs, range(model.SubgraphsLength()))):
        for place, tensor in enumerate(map(graph.Tensors, range(graph.TensorsLength()))):
            buffer = model.Buffers(tensor.Buffer())
            if buffer.DataLength():
                content = buffer.DataAsNumpy()
                constants[number, place] = StoredConstant(_address(content) - start, content.tobytes())
    return constants


def _address(array: npt.NDArray[np.uint8]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
