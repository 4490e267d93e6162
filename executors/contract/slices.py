"""Slices of a prepared network, which workers cut out of its converted file without conversion."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import keras

from executors.structure import Structure
from mistify.costs.network import NetworkCost
from mistify.package.factory import SlicedGroup
from mistify.tflite.slicing import OpenUnits

__all__ = ["Slice", "WholeNetwork"]


@dataclass(frozen=True)
class WholeNetwork:
    """A network from which slices are cut.

    Attributes:
        structure: The structure of the network: all of its units, neither scaled nor shifted.
        groups: The channel groups whose units slices select, by their names in the structure.
        examples: Returns a number of slices for random tasks. Integer networks are calibrated with these
            instead of the whole network, which serves no task.
        classes: Names of the classes of the network's only output, where a task is some of them; none
            otherwise.
    """

    structure: Structure
    groups: Sequence[SlicedGroup]
    examples: Callable[[int], Iterable[keras.Model]]
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Slice:
    """A slice that may serve a goal.

    Attributes:
        units: The open units of each group of the whole network; then the classes that stay, if it has
            classes.
        cost: The network for the cost model.
        expected: The expected quality; higher is better.
        network: Returns the slice as a model.
    """

    units: tuple[OpenUnits, ...]
    cost: NetworkCost
    expected: float
    network: Callable[[], keras.Model]
