"""The places at which a network is worth cutting, so that a helper runs the rest (CrowdHMTware III-B1)."""

from collections.abc import Sequence
from typing import Final

from mistify.package.blocks import BlockStore, BlockVariant

#: A later cut has to save this share of the bytes of an earlier one.
_SAVED: Final = 0.05


def worthwhile_starts(store: BlockStore, blocks: Sequence[BlockVariant]) -> tuple[int, ...]:
    """Return the indices of the blocks before which a network is worth cutting, and of its first block.

    An earlier cut leaves less work to this device, so that a later one is of use only if fewer bytes have to
    be sent.

    Args:
        blocks: The blocks of the network, from its inputs to its outputs.
    """
    starts = [0]
    smallest = store.bytes_at(0)
    for index, block in enumerate(blocks):
        size = store.bytes_at(block.start)
        if size <= (1 - _SAVED) * smallest:
            starts.append(index)
            smallest = size
    return tuple(starts)
