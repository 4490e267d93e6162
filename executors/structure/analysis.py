"""The structure of a Keras model: its graph, its channel groups, and its costs at any widths."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import keras
import numpy as np
import numpy.typing as npt

from executors.structure.channels import FIXED, ChannelGroup, ChannelSpace, Ids
from executors.structure.each_step import applied
from executors.structure.errors import UnsupportedLayerError
from executors.structure.folding import foldable
from executors.structure.graph import Graph, Node, Shape
from executors.structure.handlers import elements, handler_of, is_leaf
from executors.structure.paddings import folded_paddings
from executors.structure.reading.reader import read_graph
from executors.structure.rules import Rules, is_kept, least_channels, rules_of
from mistify.costs.layer import LayerCost
from mistify.costs.network import NetworkCost
from mistify.costs.operators import Operation

#: Group name -> number of remaining units in the channel group.
Widths = Mapping[str, int]


@dataclass(frozen=True)
class Channels:
    """The channels of a tensor.

    Attributes:
        fixed: Number of fixed channels.
        per_unit: Group -> channels per unit.
        units: Group -> the unit of each channel; -1 for channels without a unit of the group [channels].
    """

    fixed: int
    per_unit: Mapping[str, int]
    units: Mapping[str, Ids] = field(default_factory=dict, compare=False, repr=False)

    def count(self, widths: Widths) -> int:
        """Return the number of channels at these widths."""
        return self.fixed + sum(times * widths[group] for group, times in self.per_unit.items())

    def left(self, keep: Mapping[str, npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
        """Return a mask of the channels that are left with these units of every group [channels]."""
        left = np.ones(self.fixed + sum(int((units >= 0).sum()) for units in self.units.values()), bool)
        for group, units in self.units.items():
            left &= (units < 0) | keep[group][units]
        return left


@dataclass(frozen=True)
class Structure:
    """A model's graph and channel groups.

    Attributes:
        graph: The calls of the model, with nested models inlined.
        groups: The channel groups that can be cut, by name.
        channels: The channels of each tensor of the graph.
        rules: Pattern of layer names -> rule.
    """

    graph: Graph
    groups: Mapping[str, ChannelGroup]
    channels: tuple[Channels, ...]
    rules: Rules = field(default_factory=dict)

    @property
    def widths(self) -> dict[str, int]:
        """The current number of units of each group."""
        return {name: group.size for name, group in self.groups.items()}

    @property
    def least_widths(self) -> dict[str, int]:
        """The minimum number of units of each group."""
        return {name: group.least for name, group in self.groups.items()}

    @cached_property
    def staying(self) -> frozenset[str]:
        """The layers that cannot be removed: frozen ones, and those with a rule."""
        return self.graph.frozen | {name for name in self.graph.layers if rules_of(self.rules, name)}

    @cached_property
    def keeps_positions(self) -> bool:
        """True if the number of positions must not change, because a layer is frozen or kept unchanged."""
        return bool(self.graph.frozen) or any(is_kept(self.rules, name) for name in self.graph.layers)

    def network(self, widths: Widths | None = None) -> NetworkCost:
        """Return the network for the cost model, at the given widths or the current ones.

        Raises:
            UnsupportedLayerError: A tensor has a free dimension other than the batch.
        """
        self._require_fixed_sizes()
        widths = self.widths | dict(widths or {})
        shapes = [
            shape if not shape or shape[-1] is None else (*shape[:-1], channels.count(widths))
            for shape, channels in zip(self.graph.shapes, self.channels, strict=True)
        ]
        weights = self.weight_shapes(widths)
        layers, charged = [], set()
        for node in self.graph.nodes:
            own = [] if node.name in charged else weights[node.name]
            charged.add(node.name)
            params = _weights(own)
            stored = self._stored(node.name, own)
            handler = handler_of(node.name, node.layer)
            call = (node, weights[node.name], [shapes[index] for index in node.inputs], shapes[node.output])
            is_folded = node.name in self._folded_norms or node.output in self._folded_paddings
            operations = (
                self._left_of_norm(node.name, shapes[node.output]) if is_folded else handler.operations(*call)
            )
            layers.append(
                LayerCost(
                    name=node.name,
                    multiply_adds=handler.multiply_adds(*call),
                    params=params,
                    stored_params=_weights(stored),
                    inputs=tuple(self._folded_paddings.get(index, index) for index in node.inputs),
                    output=node.output,
                    in_place=handler.in_place or (is_folded and not operations),
                    stored_biases=_weights([shape for shape in stored if len(shape) == 1]),
                    operations=operations,
                    operators=handler.operators(*call[:3]),
                )
            )
        return NetworkCost(
            tuple(layers),
            tuple(
                0 if index in self._folded_paddings else elements(shape) for index, shape in enumerate(shapes)
            ),
            tuple(self.graph.inputs),
            self.graph.outputs,
        )

    def weight_shapes(self, widths: Widths) -> dict[str, list[Shape]]:
        """Return the shapes of every layer's weights at these widths."""
        shapes = {name: [list(shape) for shape in own] for name, own in self._weight_shapes.items()}
        for group in self.groups.values():
            for slot in group.slots:
                removed = (group.size - widths[group.name]) * slot.positions.shape[1]
                shapes[slot.layer][slot.weight][slot.axis] -= removed
        return {name: [tuple(shape) for shape in own] for name, own in shapes.items()}

    @cached_property
    def _weight_shapes(self) -> dict[str, list[Shape]]:
        """The current shapes of every layer's weights; cached, because reading them is slow."""
        return {name: [tuple(weight.shape) for weight in own] for name, own in self.graph.variables.items()}

    def _require_fixed_sizes(self) -> None:
        names = dict(self.graph.inputs) | {node.output: node.name for node in self.graph.nodes}
        for index, shape in enumerate(self.graph.shapes):
            if None in shape[1:]:
                raise UnsupportedLayerError(
                    f"the tensor of {names[index]!r} has the shape {shape}; costs need fixed sizes after the "
                    "batch; give keras.Input a full shape"
                )

    def _stored(self, name: str, weights: list[Shape]) -> list[Shape]:
        """Return the weights left after folding: a batch norm's bias if the preceding layer has none."""
        if name not in self._folded_norms:
            return weights
        return [] if applied(self._folded_norms[name].layer).use_bias else weights[:1]

    def _left_of_norm(self, name: str, output: Shape) -> tuple[Operation, ...]:
        """Return the operation that adds the bias of a folded batch norm, if the preceding layer has none."""
        maker = self._folded_norms.get(name)
        if maker is None or applied(maker.layer).use_bias:
            return ()
        return handler_of(maker.name, maker.layer).adding_bias(maker, output)

    @cached_property
    def _folded_paddings(self) -> Mapping[int, int]:
        """The outputs of paddings that fold into a convolution -> the tensors read in their place."""
        return folded_paddings(self.graph)

    @cached_property
    def _folded_norms(self) -> dict[str, Node]:
        """The batch norms that fold into the preceding layer -> the call of that layer."""
        return {norm.name: maker for norm, maker in foldable(self.graph).items()}


def _weights(shapes: list[Shape]) -> int:
    return sum(prod(size or 0 for size in shape) for shape in shapes)


def analyse(model: keras.Model, rules: Rules | None = None) -> Structure:
    """Find the channel groups of a model. The channels of an untrainable layer are fixed.

    Args:
        rules: Patterns that match no layer are ignored, because the layer may have been removed.

    Raises:
        UnsupportedLayerError: No handler supports a layer, and its call cannot be expanded into supported
            layers; the message says how to register a handler.
        TypeError: A layer has several outputs, or the model was never built.
    """
    rules, graph = rules or {}, read_graph(model, is_leaf)
    space = ChannelSpace()
    tensors: dict[int, Ids] = {
        index: space.fixed(int(graph.shapes[index][-1] or 0)) for index in graph.inputs
    }
    for node in graph.nodes:
        handler = handler_of(node.name, node.layer)
        inputs = [tensors[index] for index in node.inputs]
        tensors[node.output] = handler.couple(node, inputs, graph.shapes[node.output], space)
        kept = is_kept(rules, node.name)
        if kept or node.name in graph.frozen:
            space.fix_layer(node.name)
        for channels in (*inputs, tensors[node.output]) if kept else ():
            space.fix(channels)
    for index in graph.outputs:
        space.fix(tensors[index])
    components = space.components()
    groups = {group.name: group for group in space.groups(components)}
    by_tensor = _tensor_channels(graph, space, groups, components, tensors)
    return Structure(graph, with_least(groups, graph, by_tensor, rules), by_tensor, rules)


def trainable_weights(model: keras.Model) -> dict[str, keras.Variable]:
    """Return the trainable weights in order, named by the layer's name in the graph and a number.

    Keras's paths are not used: they depend on how nested layers were built, change when a model is loaded or
    cut, and are not always unique.
    """
    variables = read_graph(model, is_leaf).variables
    names = {
        id(own[place]): f"{layer}/{place}" for layer, own in variables.items() for place in range(len(own))
    }
    return {names[id(variable)]: variable for variable in model.trainable_variables}


def with_least(
    groups: Mapping[str, ChannelGroup], graph: Graph, channels: tuple[Channels, ...], rules: Rules
) -> dict[str, ChannelGroup]:
    """Return the groups with their minimum units, in proportion if one tensor has several groups.

    The minimum follows from the rules, and from layers that are useless with fewer channels.
    """
    least = dict.fromkeys(groups, 1)
    for node in graph.nodes:
        own = channels[node.output]
        handler = handler_of(node.name, node.layer)
        useful = handler.least_channels(node, graph.shapes[node.output])
        wanted = max(least_channels(rules, node.name), useful)
        cuttable = sum(times * groups[name].size for name, times in own.per_unit.items())
        needed = min(max(wanted - own.fixed, 0), cuttable)
        for name in own.per_unit:
            least[name] = max(least[name], -(-groups[name].size * needed // cuttable))
    return {name: replace(group, least=least[name]) for name, group in groups.items()}


def _tensor_channels(
    graph: Graph, space: ChannelSpace, groups: Mapping[str, ChannelGroup], components: Ids,
    tensors: Mapping[int, Ids],
) -> tuple[Channels, ...]:  # fmt: skip
    """Return for each tensor how its channels are divided among the groups."""
    unit_of = space.units_of_components(groups.values(), components)
    channels = []
    for index in range(len(graph.shapes)):
        labels = components[tensors[index]]
        units: dict[str, Ids] = {}
        for channel in np.flatnonzero(labels != FIXED).tolist():
            name, unit = unit_of[int(labels[channel])]
            units.setdefault(name, np.full(len(labels), -1))[channel] = unit
        counts = {name: int(np.count_nonzero(own >= 0)) for name, own in sorted(units.items())}
        per_unit = {name: count // groups[name].size for name, count in counts.items()}
        channels.append(Channels(len(labels) - sum(counts.values()), per_unit, units))
    return tuple(channels)
