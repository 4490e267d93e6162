"""Parts of a package that an algorithm adds to the goal's network."""

from collections.abc import Sequence
from dataclasses import dataclass

import keras

from executors.contract.slices import WholeNetwork
from executors.structure.blocks import Block
from mistify.package.blocks import NetworkEstimate
from mistify.scenarios.quality import Quality
from mistify.scenarios.space import TaskSpace

__all__ = ["Factory", "PackageParts"]


@dataclass(frozen=True)
class Factory:
    """A network from which devices cut slices for their own tasks, and the selection of units for a task.

    Attributes:
        whole: The network with all units open.
        assembler: Returns `logits`, and perhaps `scales` and `shifts`, of all units [requests, units] for
            `task` [requests, properties] and `limit` [requests, 1]. Scales are positive; they and the shifts
            apply in front of the activation of the layer that makes a unit.
        space: The tasks that the assembler knows.
        quality: The scores of trained tasks within each limit.
    """

    whole: WholeNetwork
    assembler: keras.Model
    space: TaskSpace
    quality: Quality


@dataclass(frozen=True)
class PackageParts:
    """Additional networks of a package, to be converted at the package's precision.

    Attributes:
        blocks: The blocks from which devices assemble their own networks, the source's blocks first; none for
            a package without a block store.
        served: Files of the blocks that make up the goal's network; none if it has layers of its own.
        front: The best networks of these blocks, by several criteria; may be empty.
        factory: The network from which devices cut their own networks; None for a package without one.
        note: A remark for readers of the goal's result; may be empty.
    """

    blocks: Sequence[Block] = ()
    served: Sequence[str] = ()
    front: Sequence[NetworkEstimate] = ()
    factory: Factory | None = None
    note: str = ""
