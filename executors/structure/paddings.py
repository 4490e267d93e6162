"""Paddings that LiteRT's converter folds into the convolutions that read them."""

from collections.abc import Mapping

import keras

from executors.structure.graph import Graph, Node, Shape

layers = keras.layers

_CONVOLUTIONS = (layers.Conv2D, layers.DepthwiseConv2D)


def folded_paddings(graph: Graph) -> Mapping[int, int]:
    """Return the tensors that are never written -> the tensors read in their place.

    A padding is folded if a convolution is its only reader, and if it equals the "same" padding.
    """
    paddings = {node.output: node for node in graph.nodes if type(node.layer) is layers.ZeroPadding2D}
    folded = {}
    for node in graph.nodes:
        padding = paddings.get(node.inputs[0]) if type(node.layer) in _CONVOLUTIONS else None
        if padding is None or graph.consumers[padding.output] != [node] or padding.output in graph.outputs:
            continue
        if _is_same(padding, node, graph.shapes[padding.inputs[0]]):
            folded[padding.output] = padding.inputs[0]
    return folded


def _is_same(padding: Node, convolution: Node, shape: Shape) -> bool:
    layer = convolution.layer
    if layer.padding != "valid" or set(layer.dilation_rate) != {1} or layer.data_format != "channels_last":
        return False
    return all(
        size is not None and tuple(padded) == _same(size, kernel, stride)
        for size, padded, kernel, stride in zip(
            shape[1:3], padding.layer.padding, layer.kernel_size, layer.strides, strict=True
        )
    )


def _same(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the padding before and after the positions of one dimension."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2
