"""The places at which a network is worth cutting, so that a helper runs the rest (CrowdHMTware III-B1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mistify.package.blocks import BlockStore, BlockVariant
from mistify.wire.limits import MAX_MESSAGE_BYTES
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.tensors import MESSAGE_BYTES, bytes_of

#: A later cut has to save this share of the bytes of an earlier one.
_SAVED: Final = 0.05


@dataclass(frozen=True)
class Cut:
    """A place before a segment of a network.

    Attributes:
        segment: Index of the first segment that a helper runs; 0 for the whole network.
        size: Bytes of the tensors at the cut, for one example.
    """

    segment: int
    size: int


def worthwhile_starts(store: BlockStore, blocks: Sequence[BlockVariant]) -> tuple[int, ...]:
    """Return the indices of the blocks before which a network is worth cutting, and of its first block.

    An earlier cut leaves less work to this device, so that a later one is of use only if fewer bytes have to
    be sent.

    Args:
        blocks: The blocks of the network, from its inputs to its outputs.
    """
    starts = [0]
    smallest = bytes_of(store.inputs)
    for index, block in enumerate(blocks):
        size = bytes_of(store.tensors_at(block.start))
        if size <= (1 - _SAVED) * smallest:
            starts.append(index)
            smallest = size
    return tuple(starts)


def cuts_of(network: BlockNetwork) -> tuple[Cut, ...]:
    """Return the cuts before the segments of a network whose tensors fit into a message."""
    sizes = [bytes_of(network.inputs_of(segment)) for segment in range(len(network.starts))]
    return tuple(
        Cut(segment, size) for segment, size in enumerate(sizes) if size + MESSAGE_BYTES <= MAX_MESSAGE_BYTES
    )
