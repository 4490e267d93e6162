"""The cuts of a network whose tensors fit into a message."""

from dataclasses import dataclass

from mistify.wire.limits import MAX_MESSAGE_BYTES
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.tensors import MESSAGE_BYTES


@dataclass(frozen=True)
class Cut:
    """A place before a segment of a network.

    Attributes:
        segment: Index of the first segment that a helper runs; 0 for the whole network.
        size: Bytes of the tensors at the cut as they are sent, for one example.
    """

    segment: int
    size: int


def cuts_of(network: BlockNetwork) -> tuple[Cut, ...]:
    """Return the cuts before the segments of a network whose tensors fit into a message."""
    cuts = (Cut(segment, network.sent_bytes(segment)) for segment in range(len(network.starts)))
    return tuple(cut for cut in cuts if cut.size + MESSAGE_BYTES <= MAX_MESSAGE_BYTES)
