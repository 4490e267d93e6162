"""Coupled channels of a network: the bookkeeping behind channel groups.

Every index along an axis that can shrink (a channel of a tensor, a row or column of a weight) has a number.
Handlers tie numbers that must be kept or cut together; the connected components are the units.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from executors.structure.graph import Node

Ids = npt.NDArray[np.int64]

#: The component of everything fixed: inputs, outputs, channels of layers that cannot shrink.
FIXED = 0


class Role(Enum):
    """The role of a weight's axis: it makes channels, passes them on, or sums over them."""

    MAKES = "makes"
    PASSES = "passes"
    SUMS = "sums"


@dataclass(frozen=True)
class Slot:
    """The positions of a group's units along one axis of one weight.

    Attributes:
        layer: The layer's name in the graph.
        weight: Index of the weight in `layer.weights`.
        axis: The axis of the weight that has the positions.
        role: The effect of the axis on the channels.
        positions: Integer array [units, positions per unit].
    """

    layer: str
    weight: int
    axis: int
    role: Role
    positions: Ids


@dataclass(frozen=True)
class ChannelGroup:
    """Channels with the same positions in all tensors and weights, all of which can be cut alike.

    Example: `Conv2D(16) -> BatchNormalization -> ReLU -> Conv2D(32)` has a group of 16 units. A unit is
    one output column of the first kernel, one value of its bias and of each of the four vectors of the
    batch norm, and one input row of the second kernel. With a residual connection around the two
    convolutions, all added tensors are one group: cutting a unit cuts it everywhere.

    Attributes:
        name: Name of the layer that makes the channels.
        size: Number of units; a unit is the smallest part that can be cut.
        slots: All positions of the units in weights.
        least: Minimum number of units, at least 1.
    """

    name: str
    size: int
    slots: tuple[Slot, ...]
    least: int = 1

    @property
    def makers(self) -> int:
        """The number of layers that make the channels, at least 1; several for a residual stream."""
        return len({slot.layer for slot in self.slots if slot.role is Role.MAKES}) or 1


@dataclass(frozen=True)
class _Axis:
    layer: str
    weight: int
    axis: int
    role: Role
    ids: Ids


class ChannelSpace:
    """An allocator of channel numbers that records which are tied."""

    def __init__(self) -> None:
        self._count = 1
        self._left: list[Ids] = []
        self._right: list[Ids] = []
        self._axes: dict[tuple[str, int, int], _Axis] = {}

    def new(self, count: int) -> Ids:
        """Return numbers for `count` untied channels."""
        first = self._count
        self._count += count
        return np.arange(first, first + count)

    def fixed(self, count: int) -> Ids:
        """Return numbers for `count` fixed channels."""
        return np.full(count, FIXED)

    def tie(self, left: Ids, right: Ids) -> None:
        """Tie channels that are kept or cut together, position by position."""
        left, right = np.broadcast_arrays(left, right)
        self._left.append(left.ravel())
        self._right.append(right.ravel())

    def fix(self, ids: Ids) -> None:
        """Mark channels as fixed."""
        self.tie(ids, np.asarray([FIXED]))

    def fix_layer(self, layer: str) -> None:
        """Mark the channels along the axes of a layer's weights as fixed."""
        for axis in self._axes.values():
            if axis.layer == layer:
                self.fix(axis.ids)

    def bind(self, node: Node, weight: object, axis: int, role: Role, ids: Ids) -> None:
        """Record the channels along an axis of a layer's weight; this ties the calls of a shared layer.

        Args:
            node: A call of the layer.
            weight: The layer's variable.
            role: The effect of the axis on the channels.
            ids: Numbers of the channels along the axis [size of the axis].
        """
        index = next(i for i, variable in enumerate(node.layer.weights) if variable is weight)
        key = (node.name, index, axis)
        if key in self._axes:
            self.tie(self._axes[key].ids, ids)
        else:
            self._axes[key] = _Axis(*key, role, ids)

    def components(self) -> Ids:
        """Return the component of each channel number; `FIXED` is component 0."""
        left = np.concatenate([np.zeros(0, np.int64), *self._left])
        right = np.concatenate([np.zeros(0, np.int64), *self._right])
        matrix = coo_array((np.ones(len(left), np.int8), (left, right)), shape=(self._count, self._count))
        _, labels = connected_components(matrix, directed=False)
        # scipy numbers components by first appearance, so the component of number 0 (FIXED) is 0.
        return np.asarray(labels, np.int64)

    def units_of_components(
        self, groups: Iterable[ChannelGroup], components: Ids
    ) -> dict[int, tuple[str, int]]:
        """Return the name of each component's group, and the unit that it is."""
        owner = {}
        for group in groups:
            slot = group.slots[0]
            ids = self._axes[slot.layer, slot.weight, slot.axis].ids[slot.positions[:, 0]]
            for unit, component in enumerate(components[ids].tolist()):
                owner[component] = group.name, unit
        return owner

    def groups(self, components: Ids) -> list[ChannelGroup]:
        """Return the components with equal axes and counts as channel groups."""
        axes = list(self._axes.values())
        if not axes:
            return []
        component = np.concatenate([components[axis.ids] for axis in axes])
        axis_index = np.concatenate([np.full(len(axis.ids), i) for i, axis in enumerate(axes)])
        position = np.concatenate([np.arange(len(axis.ids)) for axis in axes])
        free = component != FIXED
        component, axis_index, position = component[free], axis_index[free], position[free]
        order = np.lexsort((position, axis_index, component))
        if not len(order):
            return []
        component, axis_index, position = component[order], axis_index[order], position[order]
        starts = np.flatnonzero(np.r_[True, component[1:] != component[:-1]])
        families: dict[bytes, list[slice]] = {}
        for start, end in zip(starts, [*starts[1:], len(component)], strict=True):
            families.setdefault(axis_index[start:end].tobytes(), []).append(slice(start, end))
        return _named_apart([_group(axes, axis_index, position, units) for units in families.values()])


def _named_apart(groups: list[ChannelGroup]) -> list[ChannelGroup]:
    """Return groups in the order of their layers, with unique names: a layer's second group is `layer#2`."""
    seen: Counter[str] = Counter()
    named = []
    for group in groups:
        seen[group.name] += 1
        name = group.name if seen[group.name] == 1 else f"{group.name}#{seen[group.name]}"
        named.append(replace(group, name=name))
    return named


def _group(axes: list[_Axis], axis_index: Ids, position: Ids, units: list[slice]) -> ChannelGroup:
    """Return one group from its units' runs of (axis, position), which all have the same axes."""
    units = sorted(units, key=lambda unit: tuple(position[unit]))
    pattern = axis_index[units[0]]
    places = np.stack([position[unit] for unit in units])
    slots = []
    for index in dict.fromkeys(pattern.tolist()):
        axis = axes[index]
        slots.append(Slot(axis.layer, axis.weight, axis.axis, axis.role, places[:, pattern == index]))
    maker = next((slot.layer for slot in slots if slot.role is Role.MAKES), slots[0].layer)
    return ChannelGroup(maker, len(units), tuple(slots))
