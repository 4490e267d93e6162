"""Layers that are applied to each step of a sequence."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import keras

from executors.structure.channels import ChannelSpace, Ids
from executors.structure.each_step import EachStep, step_shape, without_shapes
from executors.structure.graph import Node, Shape
from executors.structure.handlers.base import LayerHandler, Product, over, register
from executors.structure.handlers.registry import handler_of
from mistify.costs.operators import LayerOperation, Operation, OperatorKind


@register(EachStep)
class EachStepHandler(LayerHandler):
    """The channels and kernels of the layer within, which has the steps as further examples."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Tie the channels as the layer within does; fix those that it averages over."""
        handler, inner = _within(node)
        channels = handler.couple(inner, inputs, step_shape(output), space)
        for averaged in (*inputs, channels) if handler.averages_channels else ():
            space.fix(averaged)
        return channels

    def least_channels(self, node: Node, output: Shape) -> int:
        """Return the minimum of the layer within."""
        handler, inner = _within(node)
        return handler.least_channels(inner, step_shape(output))

    def adds_channels(self, node: Node) -> Sequence[int]:
        """Return the inputs whose channels the layer within adds up."""
        handler, inner = _within(node)
        return handler.adds_channels(inner)

    def products(self, node: Node) -> Sequence[Product]:
        """Return the kernels of the layer within; their windows span one step."""
        handler, inner = _within(node)
        return [
            replace(product, window=product.window and product.window.of_step())
            for product in handler.products(inner)
        ]

    def config(self, layer: keras.layers.Layer, weights: Sequence[Shape], channels: int) -> dict[str, Any]:
        """Set the sizes of the layer within."""
        handler = handler_of(layer.name, layer.layer)
        config = handler.config(layer.layer, weights, channels)
        return {**layer.get_config(), "layer": without_shapes(layer.layer, config)}

    def multiply_adds(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> int:
        """Count those of the layer within at every step."""
        handler, inner = _within(node)
        once = handler.multiply_adds(inner, weights, list(map(step_shape, inputs)), step_shape(output))
        return once * (output[1] or 0)

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return those of the layer within for all steps, with reshapes before and after."""
        handler, inner = _within(node)
        once = handler.operations(inner, weights, list(map(step_shape, inputs)), step_shape(output))
        before = (over(OperatorKind.FLATTEN, shape) for shape in inputs)
        steps = (_of_steps(operation, output[1] or 0) for operation in once)
        return (*before, *steps, over(OperatorKind.FLATTEN, output))

    def adding_bias(self, node: Node, output: Shape) -> tuple[Operation, ...]:
        """Return what the layer within needs, for all steps."""
        handler, inner = _within(node)
        once = handler.adding_bias(inner, step_shape(output))
        return tuple(_of_steps(operation, output[1] or 0) for operation in once)

    def operators(self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape]) -> int:
        """Return the number of operators of the layer within, which does not depend on the steps."""
        handler, inner = _within(node)
        return handler.operators(inner, weights, list(map(step_shape, inputs)))


def _within(node: Node) -> tuple[LayerHandler, Node]:
    """Return the handler of the layer within, and its call."""
    return handler_of(node.name, node.layer.layer), replace(node, layer=node.layer.layer)


def _of_steps(operation: Operation, steps: int) -> Operation:
    """Return an operation on the steps of an example: a product of tensors is repeated for each."""
    if isinstance(operation, LayerOperation):
        operation = replace(operation, scratch=operation.scratch * steps)
    if operation.kind is OperatorKind.PRODUCT:
        return replace(operation, times=operation.times * steps)
    return replace(operation, positions=operation.positions * steps)
