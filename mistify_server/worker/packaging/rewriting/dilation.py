"""Dilated convolutions as one operation each, with which the converter fuses bias and activation.

TensorFlow traces one as SpaceToBatchND, a convolution and BatchToSpaceND. The converter puts these together
only in a graph whose batch is fixed.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

Integers = npt.NDArray[np.int32]

#: Convolutions by their numbers of dimensions.
_CONVOLUTIONS = {"Conv2D": 2, "DepthwiseConv2dNative": 2, "Conv3D": 3}

#: What stands beside the convolution in one dimension, which is that of images with a height of 1.
_RESHAPING = frozenset({"ExpandDims", "Squeeze"})

#: The attribute in which a node has the shapes of its outputs, as they were traced.
_SHAPES = "_output_shapes"


def fuse_dilations(nodes: Collection[Any]) -> None:
    """Give dilated convolutions their dilation as an attribute, instead of the operations around them.

    Args:
        nodes: The nodes of a graph or a function, which are changed.
    """
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        if node.op == "BatchToSpaceND":
            _fuse(node, by_name)


def _fuse(end: Any, nodes: Mapping[str, Any]) -> None:
    """Fuse the convolution that a BatchToSpaceND ends, if it is one and all of its sizes are known."""
    convolution = _source(end.input[0], nodes)
    if convolution is None or not _is_plain(convolution):
        return
    first = nodes.get(_node_of(convolution.input[0]))
    first = first if first is not None and first.op in _RESHAPING else convolution
    start = nodes.get(_node_of(first.input[0]))
    if start is None or start.op != "SpaceToBatchND":
        return
    block, paddings, crops = (
        _constant(tensor, nodes) for tensor in (start.input[1], start.input[2], end.input[2])
    )
    if block is None or paddings is None or crops is None:
        return
    padding = _padding(paddings - crops, block, _source(convolution.input[1], nodes))
    if not padding:
        return
    first.input[0] = start.input[0]
    rates = [1] * (_CONVOLUTIONS[convolution.op] - len(block)) + block.tolist()
    convolution.attr["dilations"].list.i[:] = [1, *rates, 1]
    convolution.attr["padding"].s = padding
    for node in (first, convolution, nodes[_node_of(end.input[0])]):
        node.attr.pop(_SHAPES, None)  # those of the batch that was spread
    del end.input[1:]
    dtype = end.attr["T"].type
    end.op = "Identity"
    end.attr.clear()
    end.attr["T"].type = dtype


def _is_plain(node: Any) -> bool:
    """Return whether a node is a convolution that neither pads nor strides."""
    plain = node.op in _CONVOLUTIONS and node.attr["padding"].s == b"VALID"
    return plain and all(stride == 1 for stride in node.attr["strides"].list.i)


def _padding(padded: Integers, block: Integers, kernel: Any) -> bytes:
    """Return the padding of a convolution; empty where it has no name.

    Args:
        padded: Padding that is not cropped again, before and behind, by dimension.
        block: Dilation by dimension.
        kernel: The node with the kernel, which may be unknown.
    """
    if not padded.any():
        return b"VALID"
    window = _window(kernel)[-len(block) :]
    if len(window) < len(block):
        return b""
    total = (np.array(window) - 1) * block
    return b"SAME" if np.array_equal(padded, np.stack([total // 2, total - total // 2], 1)) else b""


def _window(kernel: Any) -> list[int]:
    """Return the positions of a kernel by dimension; nothing if they are unknown."""
    if kernel is None:
        return []
    if kernel.op == "Const":
        shape = kernel.attr["value"].tensor.tensor_shape
    elif _SHAPES in kernel.attr:
        shape = kernel.attr[_SHAPES].list.shape[0]
    else:
        return []
    return [axis.size for axis in shape.dim][:-2]


def _source(tensor: str, nodes: Mapping[str, Any]) -> Any:
    """Return the node that computes a tensor, passing over reshapings; None if there is none."""
    source = nodes.get(_node_of(tensor))
    return _source(source.input[0], nodes) if source is not None and source.op in _RESHAPING else source


def _constant(tensor: str, nodes: Mapping[str, Any]) -> Integers | None:
    node = nodes.get(_node_of(tensor))
    if node is None or node.op != "Const":
        return None
    value: Integers = tf.make_ndarray(node.attr["value"].tensor)
    return value


def _node_of(tensor: str) -> str:
    return tensor.partition(":")[0]
