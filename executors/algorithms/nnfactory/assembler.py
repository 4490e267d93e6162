"""The module assembler: from a task and a limit to the gates of every group (NN-Factory 3.3 and 4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import e, log, pi
from typing import Any, Final

import keras
import numpy as np
import numpy.typing as npt

from executors.algorithms.nnfactory.gates import GatedGroup
from executors.pruning.importance import importances
from executors.structure import Structure

layers = keras.layers

#: Frequencies of the sines and cosines that encode a limit, each twice the one before (Vaswani et al., 2017).
_FREQUENCIES: Final = 8

#: Batch norms follow requests quickly, which are as varied as any.
_MOMENTUM: Final = 0.95

#: Standard deviation of the kernels of scales and shifts, which start near 1 and 0.
_SMALL: Final = 0.01

#: Logits start around this: most gates are open, and the limits close them later. Where half of them start
#: closed, some tasks lose all of a group's units, and with them every gradient.
_OPEN: Final = 1.0

#: Standard deviation of where they start by the worth of units.
_BY_WORTH: Final = 0.5

#: Standard deviation of the kernels of logits around the units' worth, where that is known at the start.
_SPREAD: Final = 0.02

#: The worth of each unit of a group, standardised, by the group's name.
Worth = Mapping[str, npt.NDArray[np.floating[Any]]]


@dataclass(frozen=True)
class AssemblerShape:
    """The size of an assembler.

    Attributes:
        task: Length of an encoded task.
        encoder: Width of the selection encoder.
        gaters: Gaters for each group; several are mixed by a softmax.
        modulate: Whether units get scales and shifts besides gates.
    """

    task: int
    encoder: int
    gaters: int
    modulate: bool


def assembler(shape: AssemblerShape, groups: Sequence[GatedGroup], worth: Worth | None = None) -> keras.Model:
    """Return a new assembler.

    Its inputs are `task` [requests, task], 0 or 1 for each property, and `limit` [requests, 1], the largest
    share of units that may be open. Its outputs have all units in the order of the groups: logits of the
    gates, open above 0; and, if it modulates, positive scales and shifts, 1 and 0 where a group takes none.

    Args:
        shape: The widths of its layers, and whether it modulates.
        groups: The groups whose units it opens, in the order of its outputs.
        worth: Starting logits; by default they are random.
    """
    task = keras.Input((shape.task,), name="task")
    limit = keras.Input((1,), name="limit")
    encoded = layers.Concatenate()([task, *_encoded(limit)])
    selection = layers.ReLU()(_norm("selection")(layers.Dense(shape.encoder, name="encoder")(encoded)))
    logits, scales, shifts = [], [], []
    for group in groups:
        own = _norm(group.name)(selection)
        weights = _logits(own, group, shape.gaters, worth)
        scale, shift = _modulation(own, weights, group) if shape.modulate else (None, None)
        logits.append(weights)
        scales.append(scale)
        shifts.append(shift)
    outputs = {"logits": logits, "scales": scales, "shifts": shifts} if shape.modulate else {"logits": logits}
    joined = [_joined(name, values) for name, values in outputs.items()]
    return keras.Model([task, limit], joined, name="assembler")


def starting_worth(source: Structure) -> dict[str, npt.NDArray[np.floating[Any]]]:
    """Return where the logits of gates start in a network that knows its tasks: in the order of importance.

    Most gates are open; closing half of the units of a trained network at random would destroy it.
    """
    norms = importances(source, {name: np.ones(group.size, bool) for name, group in source.groups.items()})
    return {name: _OPEN + _BY_WORTH * (own - own.mean()) / (own.std() + 1e-9) for name, own in norms.items()}


def _encoded(limit: Any) -> list[Any]:
    """Return the positional encoding of a limit."""
    angles = limit * (2.0 ** np.arange(_FREQUENCIES) * pi / 2).astype(np.float32)
    return [keras.ops.sin(angles), keras.ops.cos(angles)]


def _norm(name: str) -> keras.layers.Layer:
    return layers.BatchNormalization(momentum=_MOMENTUM, name=f"{name}-norm")


def _logits(selection: Any, group: GatedGroup, gaters: int, worth: Worth | None) -> Any:
    """Return the logits of a group: those of its gater, or of several, mixed (NN-Factory 4)."""
    starts: dict[str, Any] = {"bias_initializer": keras.initializers.Constant(_OPEN)}
    if worth is not None:
        bias = np.tile(worth[group.name], gaters)
        starts = {"kernel_initializer": _normal(_SPREAD), "bias_initializer": lambda *_, **__: bias}
    each = layers.Dense(gaters * group.units, name=f"{group.name}-gaters", **starts)(selection)
    if gaters == 1:
        return each
    mixed = layers.Dense(gaters, activation="softmax", name=f"{group.name}-mixing")(selection)
    return layers.Dot(axes=1)([layers.Reshape((gaters, group.units))(each), mixed])


def _modulation(selection: Any, logits: Any, group: GatedGroup) -> tuple[Any, Any]:
    """Return the scales, which are positive, and the shifts of a group."""
    if group.modulated is None:
        return keras.ops.ones_like(logits), keras.ops.zeros_like(logits)
    start = keras.initializers.Constant(log(e - 1))  # its softplus is 1
    positive = {"activation": "softplus", "bias_initializer": start, "name": f"{group.name}-scales"}
    scale = layers.Dense(group.units, kernel_initializer=_normal(_SMALL), **positive)
    shift = layers.Dense(group.units, kernel_initializer=_normal(_SMALL), name=f"{group.name}-shifts")
    return scale(selection), shift(selection)


def _normal(deviation: float) -> keras.initializers.Initializer:
    """Return a new initializer: one that layers share would give them the same values."""
    return keras.initializers.RandomNormal(stddev=deviation)


def _joined(name: str, values: Sequence[Any]) -> Any:
    if len(values) == 1:
        return layers.Identity(name=name)(values[0])
    return layers.Concatenate(name=name)(values)
