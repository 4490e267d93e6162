"""Parts of a package that an algorithm ships beside the goal's network."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import keras

from executors.structure import Structure
from executors.structure.blocks import Block
from mistify.package.factory import SlicedGroup
from mistify.scenarios.quality import Quality
from mistify.scenarios.space import TaskSpace

__all__ = ["Factory", "PackageParts"]


@dataclass(frozen=True)
class Factory:
    """A network out of which devices cut slices for tasks of their own, and what tells them which units.

    Attributes:
        structure: The structure of the network: all of its units, neither scaled nor shifted.
        groups: The channel groups that slices have some units of, by their names in the structure.
        assembler: Returns `logits`, and perhaps `scales` and `shifts`, of all units [requests, units] for
            `task` [requests, properties] and `limit` [requests, 1]. Scales are positive; they and the shifts
            apply in front of the activation of the layer that makes a unit.
        space: The tasks that the assembler knows.
        quality: The scores of trained tasks within each limit.
        slices: Returns so many networks as devices may cut, for random tasks and limits. Integer packages
            take the scales of activations from these, not from the network, which serves no task.
    """

    structure: Structure
    groups: Sequence[SlicedGroup]
    assembler: keras.Model
    space: TaskSpace
    quality: Quality
    slices: Callable[[int], Iterable[keras.Model]]


@dataclass(frozen=True)
class PackageParts:
    """Further networks of a package, to be converted at the package's precision.

    Attributes:
        blocks: The blocks that devices put their own networks together from, those of the source first; none
            for a package without a block store.
        served: Files of the blocks that make up the goal's network; none where it has layers of its own.
        factory: The network that devices cut their own networks out of; None for a package without one.
        note: A remark for readers of the goal's result; may be empty.
    """

    blocks: Sequence[Block] = ()
    served: Sequence[str] = ()
    factory: Factory | None = None
    note: str = ""
