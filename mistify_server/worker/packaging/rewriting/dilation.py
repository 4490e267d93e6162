"""Fusion of dilated convolutions into single operations, which the converter fuses with bias and activation.

TensorFlow traces a dilated convolution as SpaceToBatchND, a convolution and BatchToSpaceND. The converter
only merges these in graphs with a fixed batch.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

Integers = npt.NDArray[np.int32]

#: Convolution -> number of dimensions.
_CONVOLUTIONS = {"Conv2D": 2, "DepthwiseConv2dNative": 2, "Conv3D": 3}

#: Operations around a one-dimensional convolution, which is computed on images with a height of 1.
_RESHAPING = frozenset({"ExpandDims", "Squeeze"})

#: Attribute of a node with the traced shapes of its outputs.
_SHAPES = "_output_shapes"


def fuse_dilations(nodes: Collection[Any]) -> None:
    """Set the dilation of dilated convolutions as an attribute, replacing the operations around them.

    Args:
        nodes: The nodes of a graph or function, modified in place.
    """
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        if node.op == "BatchToSpaceND":
            _fuse(node, by_name)


def _fuse(end: Any, nodes: Mapping[str, Any]) -> None:
    """Fuse the dilated convolution that ends in a BatchToSpaceND, if there is one with known sizes."""
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
        node.attr.pop(_SHAPES, None)  # the shapes with the enlarged batch
    del end.input[1:]
    dtype = end.attr["T"].type
    end.op = "Identity"
    end.attr.clear()
    end.attr["T"].type = dtype


def _is_plain(node: Any) -> bool:
    """Return whether a node is a convolution without padding or stride."""
    plain = node.op in _CONVOLUTIONS and node.attr["padding"].s == b"VALID"
    return plain and all(stride == 1 for stride in node.attr["strides"].list.i)


def _padding(padded: Integers, block: Integers, kernel: Any) -> bytes:
    """Return the named padding of a convolution; empty if it has no name.

    Args:
        padded: Padding that is not cropped again, before and after, by dimension.
        block: Dilation by dimension.
        kernel: The node with the kernel; may be unknown.
    """
    if not padded.any():
        return b"VALID"
    window = _window(kernel)[-len(block) :]
    if len(window) < len(block):
        return b""
    total = (np.array(window) - 1) * block
    return b"SAME" if np.array_equal(padded, np.stack([total // 2, total - total // 2], 1)) else b""


def _window(kernel: Any) -> list[int]:
    """Return the size of a kernel by dimension; empty if unknown."""
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
    """Return the node that computes a tensor, skipping reshapes; None if there is none."""
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
