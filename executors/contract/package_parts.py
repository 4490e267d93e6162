"""Parts of a package that an algorithm adds to the goal's network."""

from collections.abc import Sequence
from dataclasses import dataclass

from executors.structure.blocks import Block

__all__ = ["PackageParts"]


@dataclass(frozen=True)
class PackageParts:
    """Additional networks of a package, to be converted at the package's precision.

    Attributes:
        blocks: The blocks from which devices assemble their own networks, the source's blocks first; none for
            a package without a block store.
        served: Files of the blocks that make up the goal's network; none if it has layers of its own.
        note: A remark for readers of the goal's result; may be empty.
    """

    blocks: Sequence[Block] = ()
    served: Sequence[str] = ()
    note: str = ""
