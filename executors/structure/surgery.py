"""Changing the widths of a model: `narrow` cuts units of channel groups, `widen` adds copies."""

from collections.abc import Iterator, Mapping
from math import ceil

import keras
import numpy as np
import numpy.typing as npt

from executors.structure.analysis import Structure, analyse
from executors.structure.channels import ChannelGroup, Ids, Role
from executors.structure.handlers import handler_of

#: For each group one boolean per unit: whether it stays. A group that is absent stays whole.
Keep = Mapping[str, npt.NDArray[np.bool_]]

#: For each group and each unit of the new model the unit of the old one that it comes from.
_Origins = Mapping[str, Ids]


def narrow(structure: Structure, keep: Keep) -> keras.Model:
    """A smaller model of its own that computes what the model computes with the cut channels ignored.

    Raises:
        ValueError: A mask of an unknown group, of the wrong length, or one that cuts a whole group.
    """
    for name, mask in keep.items():
        group = structure.groups.get(name)
        if group is None or len(mask) != group.size or not mask.any():
            expected = f"{group.size} booleans, one at least true" if group else f"one of {list(structure.groups)}"
            raise ValueError(f"keep[{name!r}] is {np.asarray(mask)}; expected {expected}")
    model, _ = _resize(structure, {name: np.flatnonzero(mask) for name, mask in keep.items()})
    return model


def widen(structure: Structure, factor: float, seed: int = 0) -> keras.Model:
    """A wider model that computes the same: every group grows by `factor`, rounded up.

    New units are copies. Whatever sums over a copied channel shares its weights out among the copies, in
    unequal parts, so that training can tell the copies apart. Groups below a layer norm grow by a whole
    factor, which keeps its statistics.

    Raises:
        ValueError: A factor below 1.
    """
    if factor < 1:
        raise ValueError(f"factor is {factor}; expected at least 1; narrow() makes a model smaller")
    rng = np.random.default_rng(seed)
    origins = {}
    for group in structure.groups.values():
        size = ceil(group.size * (ceil(factor) if _normalised_jointly(structure, group) else factor))
        origins[group.name] = np.sort(np.arange(size) % group.size)
    model, wide = _resize(structure, origins)
    shares = {name: _shares(units, rng) for name, units in origins.items()}
    weights = {name: layer.get_weights() for name, layer in wide.graph.layers.items()}
    for group in wide.groups.values():
        for slot in group.slots:
            if slot.role is Role.SUMS:
                weight = weights[slot.layer][slot.weight]
                scale = np.ones(weight.shape[slot.axis], weight.dtype)
                scale[slot.positions] = shares[group.name][:, None]
                along = [-1 if axis == slot.axis else 1 for axis in range(weight.ndim)]
                weights[slot.layer][slot.weight] = weight * scale.reshape(along)
    for name, layer in wide.graph.layers.items():
        layer.set_weights(weights[name])
    return model


def _resize(structure: Structure, origins: _Origins) -> tuple[keras.Model, Structure]:
    """Build the model at other widths and take over the weights of each unit's origin."""
    widths = structure.widths | {name: len(units) for name, units in origins.items()}
    shapes = structure.weight_shapes(widths)
    output_of = {node.name: structure.channels[node.output].count(widths) for node in structure.graph.nodes}

    def make_layer(name: str, layer: keras.layers.Layer) -> keras.layers.Layer:
        config = handler_of(name, layer).config(layer, shapes[name], output_of[name])
        return type(layer).from_config({**config, "name": name})

    model = structure.graph.build(make_layer)
    resized = analyse(model)
    weights = {name: layer.get_weights() for name, layer in structure.graph.layers.items()}
    for layer, weight, axis, sources in _axis_sources(structure, resized, origins):
        weights[layer][weight] = np.take(weights[layer][weight], sources, axis=axis)
    for name, layer in resized.graph.layers.items():
        layer.set_weights(weights[name])
    return model, resized


def _axis_sources(
    old: Structure, new: Structure, origins: _Origins
) -> Iterator[tuple[str, int, int, Ids]]:
    """For every weight axis that changes: where each of its new positions comes from.

    Both models were analysed alike, so slot by slot the positions of a unit correspond to those of its
    origin; positions of no group keep their order.
    """
    axes: dict[tuple[str, int, int], list[tuple[Ids, Ids]]] = {}
    for name, units in origins.items():
        for before, after in zip(old.groups[name].slots, new.groups[name].slots, strict=True):
            moved = (before.positions[units].ravel(), after.positions.ravel())
            axes.setdefault((before.layer, before.weight, before.axis), []).append(moved)
    for name in old.groups.keys() - origins.keys():
        for before, after in zip(old.groups[name].slots, new.groups[name].slots, strict=True):
            key = (before.layer, before.weight, before.axis)
            if key in axes:
                axes[key].append((before.positions.ravel(), after.positions.ravel()))
    for (layer, weight, axis), moves in axes.items():
        old_size = old.graph.layers[layer].weights[weight].shape[axis]
        new_size = new.graph.layers[layer].weights[weight].shape[axis]
        sources = np.full(new_size, -1)
        covered = np.zeros(old_size, bool)
        for before, after in moves:
            sources[after] = before
        for group in old.groups.values():
            for slot in group.slots:
                if (slot.layer, slot.weight, slot.axis) == (layer, weight, axis):
                    covered[slot.positions] = True
        sources[sources < 0] = np.flatnonzero(~covered)
        yield layer, weight, axis, sources


def _shares(origins: Ids, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """The part of its origin's outgoing weights that each copy gets; the parts of an origin sum to 1."""
    parts = rng.uniform(0.5, 1.5, len(origins))
    return (parts / np.bincount(origins, parts)[origins]).astype(np.float32)


def _normalised_jointly(structure: Structure, group: ChannelGroup) -> bool:
    layers = structure.graph.layers
    return any(type(layers[slot.layer]) is keras.layers.LayerNormalization for slot in group.slots)
