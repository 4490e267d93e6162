"""Gated groups of units, and a network whose gates are given for each example (NN-Factory 3.2, eq. 2-5).

A unit is a channel of a convolution or a hidden neuron of a feed-forward layer. Its gate multiplies it where
another layer sums over it, behind activations and batch norms, so that a closed unit adds nothing, whatever
the activation makes of zero.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from executors.structure import ChannelGroup, Role, Structure, averaged_groups, foldable, set_weights
from executors.structure.composition import copied_layer
from executors.structure.graph import Graph, Node
from executors.structure.keras_internals import maker

layers = keras.layers

#: Layers that combine several tensors, whose groups are those of a residual stream. The factors of a
#: squeeze-and-excite block are none: they belong to the units that they multiply.
_MERGING: Final = (
    *(layers.Add, layers.Average, layers.Concatenate),
    *(layers.Maximum, layers.Minimum, layers.Subtract),
)

#: Layers that rearrange elements: their input has one channel for each unit.
_ARRANGING: Final = (layers.Flatten, layers.Reshape)

#: The values of units that are inputs of a network with gates.
GATES, SCALES, SHIFTS = "gates", "scales", "shifts"

#: Prefix of the names of layers and inputs that are added to a network.
_PREFIX: Final = "nnfactory-"

#: The minimum number of units for gates.
_ENOUGH: Final = 32


@dataclass(frozen=True)
class GatedGroup:
    """A channel group whose units have gates.

    Attributes:
        name: Name of the channel group.
        units: Number of units.
        least: Units that stay open, at least 1.
        maker: The layer that makes the units, the first if there are several.
        gated: Tensors of the graph that the gates multiply, each with one channel for each unit.
        modulated: The tensor that takes a scale and a shift for each unit, in front of an activation; None
            where several layers make the units, or no bias could take up the shifts.
    """

    name: str
    units: int
    least: int
    maker: str
    gated: tuple[int, ...]
    modulated: int | None


def gated_groups(structure: Structure) -> tuple[GatedGroup, ...]:
    """Return the groups whose units can have gates, in the order of the network's layers.

    They are inside blocks: no sum or concatenation carries them, and no layer norm averages over them, as
    other units would change if one were closed. Layers that have to stay as they are make none of them.
    """
    outer = averaged_groups(structure) | _merged(structure)
    gated = (_gated_group(structure, group) for name, group in structure.groups.items() if name not in outer)
    return tuple(group for group in gated if group is not None)


def enough_units(groups: Sequence[GatedGroup]) -> bool:
    """Check whether groups have enough units for gates."""
    return sum(group.units for group in groups) >= _ENOUGH


def gated(structure: Structure, groups: Sequence[GatedGroup], modulate: bool) -> keras.Model:
    """Return a network with gates: the structure's layers with copies of their weights, under their names.

    Its inputs are those of the network, and those of `gate_inputs`.

    Args:
        structure: The network.
        modulate: Whether units get a scale and a shift besides.
    """
    graph = structure.graph
    tensors = {
        index: keras.Input(graph.shapes[index][1:], dtype=graph.dtypes[index], name=name)
        for index, name in graph.inputs.items()
    }
    inputs = list(tensors.values())
    gates = [_unit_input(GATES, group) for group in groups]
    modulated = [group for group in groups if group.modulated is not None] if modulate else []
    scales, shifts = ([_unit_input(kind, group) for group in modulated] for kind in (SCALES, SHIFTS))
    gate_of = {tensor: gate for group, gate in zip(groups, gates, strict=True) for tensor in group.gated}
    change_of = {group.modulated: change for group, *change in zip(modulated, scales, shifts, strict=True)}
    made = {name: copied_layer(name, layer) for name, layer in graph.layers.items()}
    for node in graph.nodes:
        args, kwargs = node.call_arguments(tensors.__getitem__)
        layer = made[node.name]
        if node.output in change_of:
            value = _modulated(layer, args, kwargs, *change_of[node.output])
        else:
            value = layer(*args, **kwargs)
        if node.output in gate_of:
            value = _merged_along(layers.Multiply, "gated", value, gate_of[node.output])
        tensors[node.output] = value
    for name, values in graph.weights.items():
        set_weights(made[name], values)
    outputs = [tensors[index] for index in graph.outputs]
    return keras.Model([*inputs, *gates, *scales, *shifts], outputs, name=graph.name)


def gate_inputs(groups: Sequence[GatedGroup], values: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return the inputs of a network with gates, but for those of the network itself, by name.

    Args:
        groups: The groups with gates, in the order of their units in the values.
        values: "gates", and "scales" and "shifts" of a modulated network: values of all units, group after
            group [examples, all units].
    """
    inputs = {}
    for kind, of_all in values.items():
        parts = tf.split(of_all, [group.units for group in groups], axis=1)
        for group, part in zip(groups, parts, strict=True):
            if kind == GATES or group.modulated is not None:
                inputs[_input_name(kind, group)] = part
    return inputs


def _gated_group(structure: Structure, group: ChannelGroup) -> GatedGroup | None:
    """Return a group with the tensors that its gates multiply; None where its units can have no gates."""
    makers = [slot for slot in group.slots if slot.role is Role.MAKES]
    in_order = np.arange(group.size)[:, None]
    if (
        not makers
        or group.size == group.least
        or any(not np.array_equal(slot.positions, in_order) for slot in makers)
    ):
        return None
    if not structure.staying.isdisjoint(slot.layer for slot in makers):
        return None
    tensors = list(_summed(structure, group))
    if not tensors or None in tensors:
        return None
    modulated = _modulated_tensor(structure.graph, makers[0].layer) if group.makers == 1 else None
    gated_tensors = tuple(dict.fromkeys(tensor for tensor in tensors if tensor is not None))
    return GatedGroup(group.name, group.size, group.least, makers[0].layer, gated_tensors, modulated)


def _merged(structure: Structure) -> set[str]:
    """Return the groups that a sum or a concatenation of tensors carries."""
    return {
        name
        for node in structure.graph.nodes
        if isinstance(node.layer, _MERGING)
        for tensor in node.inputs
        for name in structure.channels[tensor].per_unit
    }


def _summed(structure: Structure, group: ChannelGroup) -> Iterator[int | None]:
    """Yield the tensors that layers with sums over a group read; None for one that has other channels."""
    summing = {slot.layer for slot in group.slots if slot.role is Role.SUMS}
    made_by = {node.output: node for node in structure.graph.nodes}
    for node in structure.graph.nodes:
        if node.name in summing:
            for tensor in node.inputs:
                if group.name in structure.channels[tensor].per_unit:
                    yield _one_for_each(structure, group.name, tensor, made_by)


def _one_for_each(
    structure: Structure, name: str, tensor: int, made_by: dict[int, Node]
) -> int | None:  # fmt: skip
    """Return a tensor with one channel for each unit: this one, or the one that it is arranged from."""
    while True:
        channels = structure.channels[tensor]
        if channels.fixed == 0 and dict(channels.per_unit) == {name: 1}:
            return tensor
        node = made_by.get(tensor)
        if node is None or not isinstance(node.layer, _ARRANGING):
            return None
        (tensor,) = node.inputs


def _modulated_tensor(graph: Graph, layer: str) -> int | None:
    """Return the tensor behind a layer that makes units, or behind its batch norm; None without a bias."""
    calls = [node for node in graph.nodes if node.name == layer]
    if len(calls) > 1:
        return None
    for norm, made in foldable(graph).items():
        if made is calls[0]:
            return norm.output if norm.layer.scale and norm.layer.center else None
    return calls[0].output if getattr(calls[0].layer, "use_bias", False) else None


def _unit_input(kind: str, group: GatedGroup) -> keras.KerasTensor:
    return keras.Input((group.units,), name=_input_name(kind, group))


def _input_name(kind: str, group: GatedGroup) -> str:
    return f"{_PREFIX}{kind}-{group.name.replace('#', '-')}"


def _modulated(layer: keras.layers.Layer, args: Any, kwargs: Any, scale: Any, shift: Any) -> Any:
    """Return a layer's output with a scale and a shift for each unit, in front of its activation."""
    activation = getattr(layer, "activation", None)
    if activation is not None:
        layer.activation = keras.activations.linear
    value = _merged_along(layers.Multiply, "scaled", layer(*args, **kwargs), scale)
    value = _merged_along(layers.Add, "shifted", value, shift)
    if activation is None:
        return value
    return layers.Activation(activation, name=f"{_PREFIX}activated-{layer.name}")(value)


def _merged_along(merge: type[keras.layers.Layer], kind: str, tensor: Any, units: Any) -> Any:
    """Return a tensor merged with values of units [examples, units] along its last axis."""
    name = f"{_PREFIX}{kind}-{maker(tensor).name}"
    between = len(tensor.shape) - 2
    if between:
        units = layers.Reshape((*[1] * between, units.shape[-1]), name=f"{name}-units")(units)
    return merge(name=name)([tensor, units])
