"""Changing the widths of a model: `narrow` cuts units of channel groups, `widen` adds some."""

from collections.abc import Mapping, Sequence
from math import ceil, sqrt
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from executors.structure.analysis import Channels, Structure, Widths, analyse
from executors.structure.channels import Ids, Role, Slot
from executors.structure.handlers import handler_of

#: For each group one boolean per unit: whether it stays. A group that is absent stays whole.
Keep = Mapping[str, npt.NDArray[np.bool_]]

Weights = dict[str, list[npt.NDArray[Any]]]


def narrow(structure: Structure, keep: Keep) -> keras.Model:
    """Return a smaller model of its own that computes what the model computes with the cut channels ignored.

    Raises:
        ValueError: A mask of an unknown group, of the wrong length, or one that cuts a whole group.
    """
    for name, mask in keep.items():
        group = structure.groups.get(name)
        if group is None or len(mask) != group.size or not mask.any():
            expected = (
                f"{group.size} booleans, one at least true" if group else f"one of {list(structure.groups)}"
            )
            raise ValueError(f"keep[{name!r}] is {np.asarray(mask)}; expected {expected}")
    weights = structure.graph.weights
    _cut(structure, keep, weights)
    widths = {name: int(np.count_nonzero(mask)) for name, mask in keep.items()}
    return _build(structure, widths, weights)


def narrow_arrays(
    structure: Structure, keep: Keep, arrays: Mapping[str, npt.NDArray[Any]]
) -> dict[str, npt.NDArray[Any]]:
    """Return arrays of the shapes of the model's weights, by name, cut as `narrow` cuts the weights.

    Arrays of layers that the structure does not have are left out.

    Args:
        structure: The structure of the network before the cut.
        keep: The units that stay in each group.
        arrays: Arrays by the names of the weights (`trainable_weights`).
    """
    places = {
        f"{layer}/{place}": (layer, place)
        for layer, variables in structure.graph.variables.items()
        for place in range(len(variables))
    }
    cut: Weights = structure.graph.weights
    there = places.keys() & arrays.keys()
    for name in there:
        layer, place = places[name]
        cut[layer][place] = arrays[name]
    _cut(structure, keep, cut)
    return {name: cut[places[name][0]][places[name][1]] for name in there}


def widened(structure: Structure, factor: float) -> dict[str, int]:
    """Return the widths at which a model is `factor` times as wide, rounded up, and can compute the same.

    Groups below a layer norm grow by a whole factor, which keeps its statistics. If the layer norm also
    averages over channels that must stay, its groups keep their width, and so does every group that shares
    a layer norm with one of them.

    Raises:
        ValueError: A factor below 1.
    """
    if factor < 1:
        raise ValueError(f"factor is {factor}; expected at least 1; narrow() makes a model smaller")
    growth: dict[str, float] = dict.fromkeys(structure.groups, factor)
    averaged = _averaged(structure)
    for channels in averaged:
        growth.update(dict.fromkeys(channels.per_unit, ceil(factor)))
    stay: set[str] = set()
    while tied := {
        name
        for channels in averaged
        if channels.fixed or not stay.isdisjoint(channels.per_unit)
        for name in channels.per_unit.keys() - stay
    }:
        stay |= tied
    growth.update(dict.fromkeys(stay, 1))
    return {name: ceil(group.size * growth[name]) for name, group in structure.groups.items()}


def widen(structure: Structure, factor: float, seed: int = 0) -> keras.Model:
    """Return a wider model that computes the same, with the widths of `widened`.

    New units are variants of others: they have the other's weights, changed at random, and contribute nothing
    at first. So each has gradients of its own; exact copies would stay alike. Below a layer norm new units
    have to be copies, or its statistics would change: layers that sum over them divide their weights among
    the copies, in unequal parts.

    Args:
        factor: At least 1.
        seed: Seed for the new units, and the shares of copies.

    Raises:
        ValueError: A factor below 1.
    """
    rng = np.random.default_rng(seed)
    widths = widened(structure, factor)
    origins = {
        name: np.sort(np.arange(widths[name]) % group.size) for name, group in structure.groups.items()
    }
    wide = analyse(_build(structure, widths, {}), structure.rules)
    copied_groups = {name for channels in _averaged(structure) for name in channels.per_unit}
    shares = {
        name: _shares(units, rng) if name in copied_groups else _is_first(units).astype(np.float32)
        for name, units in origins.items()
    }
    weights = structure.graph.weights
    wide_slots = _slots_by_axis(wide)
    for key, slots in _slots_by_axis(structure).items():
        layer, weight, axis = key
        size = wide.graph.layers[layer].weights[weight].shape[axis]
        sources, scale = _copied(slots, wide_slots[key], size, origins, shares)
        along = [-1 if place == axis else 1 for place in range(weights[layer][weight].ndim)]
        copied = np.take(weights[layer][weight], sources, axis=axis)
        weights[layer][weight] = copied * scale.reshape(along).astype(copied.dtype)
    for name, group in wide.groups.items():
        if name not in copied_groups:
            _vary(weights, group.slots, np.flatnonzero(~_is_first(origins[name])), rng)
    return _build(structure, widths, weights)


def averaged_groups(structure: Structure) -> set[str]:
    """Return the groups over which a layer averages: all of their units count, masked ones, too."""
    return {name for channels in _averaged(structure) for name in channels.per_unit}


def _cut(structure: Structure, keep: Keep, weights: Weights) -> None:
    """Cut the units that do not stay out of arrays with the model's shapes."""
    for (layer, weight, axis), slots in _slots_by_axis(structure).items():
        cut = [slot.positions[~keep[group]].ravel() for group, slot in slots if group in keep]
        if cut:
            weights[layer][weight] = np.delete(weights[layer][weight], np.concatenate(cut), axis=axis)


def _build(structure: Structure, widths: Widths, weights: Weights) -> keras.Model:
    """Return the model at other widths, with these weights."""
    widths = structure.widths | dict(widths)
    shapes = structure.weight_shapes(widths)
    channels = {node.name: structure.channels[node.output].count(widths) for node in structure.graph.nodes}

    def make_layer(name: str, layer: keras.layers.Layer) -> keras.layers.Layer:
        config = handler_of(name, layer).config(layer, shapes[name], channels[name])
        return type(layer).from_config({**config, "name": name})

    return structure.graph.build(make_layer, weights)


def _slots_by_axis(structure: Structure) -> dict[tuple[str, int, int], list[tuple[str, Slot]]]:
    """Return the slots along each weight axis (layer, weight, axis) with their groups' names."""
    axes: dict[tuple[str, int, int], list[tuple[str, Slot]]] = {}
    for name, group in structure.groups.items():
        for slot in group.slots:
            axes.setdefault((slot.layer, slot.weight, slot.axis), []).append((name, slot))
    return axes


def _copied(
    old: Sequence[tuple[str, Slot]], new: Sequence[tuple[str, Slot]], size: int,
    origins: Mapping[str, Ids], shares: Mapping[str, npt.NDArray[np.float32]],
) -> tuple[Ids, npt.NDArray[np.float32]]:  # fmt: skip
    """Return for each new position along a weight axis the old one that it copies, and its factor.

    Both models were analysed alike, so the positions of a unit correspond to those of its origin, slot by
    slot; positions of no group keep their order.
    """
    sources = np.full(size, -1)
    scale = np.ones(size, np.float32)
    old_positions = np.concatenate([slot.positions.ravel() for _, slot in old])
    for (group, before), (_, after) in zip(old, new, strict=True):
        sources[after.positions] = before.positions[origins[group]]
        if after.role is Role.SUMS:
            scale[after.positions] = shares[group][:, None]
    fixed = np.flatnonzero(sources < 0)
    sources[fixed] = np.setdiff1d(np.arange(len(fixed) + len(old_positions)), old_positions)
    return sources, scale


def _shares(origins: Ids, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return each copy's part of its origin's outgoing weights; the parts of an origin sum to 1."""
    parts = rng.uniform(0.5, 1.5, len(origins))
    return (parts / np.bincount(origins, parts)[origins]).astype(np.float32)


def _is_first(origins: Ids) -> npt.NDArray[np.bool_]:
    """Return for each unit, in the order of their origins, whether it is the first one of its origin."""
    return np.diff(origins, prepend=-1) > 0


def _vary(weights: Weights, slots: Sequence[Slot], units: Ids, rng: np.random.Generator) -> None:
    """Change at random, by half and at the same scale, the kernels that make some units.

    Args:
        weights: The weights of the wider model, changed in place.
        slots: Slots of the units' group in the wider model.
    """
    for slot in slots:
        kernel = weights[slot.layer][slot.weight]
        if slot.role is Role.MAKES and kernel.ndim > 1 and len(units):
            own = np.moveaxis(kernel, slot.axis, 0)  # a view: what is assigned to it is in the kernel
            places = slot.positions[units].ravel()
            noise = rng.normal(0.0, kernel.std(), own[places].shape)
            own[places] = (sqrt(0.5) * (own[places] + noise)).astype(kernel.dtype)


def _averaged(structure: Structure) -> list[Channels]:
    """Return the channels that each layer norm averages over, which must keep their proportions."""
    return [
        structure.channels[node.output]
        for node in structure.graph.nodes
        if handler_of(node.name, node.layer).averages_channels
    ]
