"""Changes to the widths of a model: `narrow` cuts units of channel groups, `widen` adds units.

`resized` returns only the architecture at other widths.
"""

from collections.abc import Mapping, Sequence
from math import ceil, sqrt
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from executors.structure.analysis import Channels, Structure, Widths, analyse
from executors.structure.channels import Ids, Role, Slot
from executors.structure.handlers import handler_of

#: Group -> one boolean per unit: whether it stays. Absent groups stay complete.
Keep = Mapping[str, npt.NDArray[np.bool_]]

Weights = dict[str, list[npt.NDArray[Any]]]


def narrow(structure: Structure, keep: Keep) -> keras.Model:
    """Return a smaller, independent model that computes the same as the model without the cut channels.

    Raises:
        ValueError: A mask has an unknown group or the wrong length, or cuts a whole group.
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
    """Return arrays with the shapes of the model's weights, by name, cut as `narrow` cuts the weights.

    Arrays of layers that the structure lacks are dropped.

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

    Groups under a layer norm grow by an integer factor, which preserves its statistics. If the layer norm
    also averages over fixed channels, its groups keep their width, and so does every group that shares a
    layer norm with one of them. Groups whose channels are added up without weights keep their width, too.

    Raises:
        ValueError: The factor is below 1.
    """
    if factor < 1:
        raise ValueError(f"factor is {factor}; expected at least 1; narrow() makes a model smaller")
    growth: dict[str, float] = dict.fromkeys(structure.groups, factor)
    averaged = _averaged(structure)
    for channels in averaged:
        growth.update(dict.fromkeys(channels.per_unit, ceil(factor)))
    stay = _added_up(structure)
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

    New units are randomly perturbed copies of others, with zero outgoing weights at first. Each therefore has
    gradients of its own, whereas exact copies would stay identical. Under a layer norm, new units have to be
    exact copies to preserve its statistics: layers that sum over them divide their weights among the copies,
    in unequal parts.

    Args:
        factor: At least 1.
        seed: Seed for the new units, and the shares of copies.

    Raises:
        ValueError: The factor is below 1.
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


def resized(structure: Structure, widths: Widths) -> keras.Model:
    """Return an independent model at other widths, with new weights where layers change."""
    shapes, weights = structure.weight_shapes(structure.widths | dict(widths)), structure.graph.weights
    kept = {name: own for name, own in weights.items() if [array.shape for array in own] == shapes[name]}
    return _build(structure, widths, kept)


def averaged_groups(structure: Structure) -> set[str]:
    """Return the groups over which a layer averages, so that even masked units count."""
    return {name for channels in _averaged(structure) for name in channels.per_unit}


def _cut(structure: Structure, keep: Keep, weights: Weights) -> None:
    """Remove the cut units from arrays with the model's shapes."""
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
    """Return the slots along each weight axis (layer, weight, axis), with their groups' names."""
    axes: dict[tuple[str, int, int], list[tuple[str, Slot]]] = {}
    for name, group in structure.groups.items():
        for slot in group.slots:
            axes.setdefault((slot.layer, slot.weight, slot.axis), []).append((name, slot))
    return axes


def _copied(
    old: Sequence[tuple[str, Slot]], new: Sequence[tuple[str, Slot]], size: int,
    origins: Mapping[str, Ids], shares: Mapping[str, npt.NDArray[np.float32]],
) -> tuple[Ids, npt.NDArray[np.float32]]:  # fmt: skip
    """Return the old position that each new position along a weight axis copies, and its factor.

    Both models were analysed in the same way, so the positions of a unit correspond to those of its origin,
    slot by slot; positions without a group keep their order.
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
    """Return each copy's share of its origin's outgoing weights; the shares of an origin sum to 1."""
    parts = rng.uniform(0.5, 1.5, len(origins))
    return (parts / np.bincount(origins, parts)[origins]).astype(np.float32)


def _is_first(origins: Ids) -> npt.NDArray[np.bool_]:
    """Return which units, sorted by origin, are the first of their origin."""
    return np.diff(origins, prepend=-1) > 0


def _vary(weights: Weights, slots: Sequence[Slot], units: Ids, rng: np.random.Generator) -> None:
    """Perturb the kernels that make some units: half random, at the same scale.

    Args:
        weights: The weights of the wider model, changed in place.
        slots: Slots of the units' group in the wider model.
    """
    for slot in slots:
        kernel = weights[slot.layer][slot.weight]
        if slot.role is Role.MAKES and kernel.ndim > 1 and len(units):
            own = np.moveaxis(kernel, slot.axis, 0)  # a view, so assignments change the kernel
            places = slot.positions[units].ravel()
            noise = rng.normal(0.0, kernel.std(), own[places].shape)
            own[places] = (sqrt(0.5) * (own[places] + noise)).astype(kernel.dtype)


def _added_up(structure: Structure) -> set[str]:
    """Return the groups with channels that a layer adds up without weights."""
    return {
        name
        for node in structure.graph.nodes
        for place in handler_of(node.name, node.layer).adds_channels(node)
        for name in structure.channels[node.inputs[place]].per_unit
    }


def _averaged(structure: Structure) -> list[Channels]:
    """Return the channels that each layer norm averages over, whose proportions must not change."""
    return [
        structure.channels[node.output]
        for node in structure.graph.nodes
        if handler_of(node.name, node.layer).averages_channels
    ]
