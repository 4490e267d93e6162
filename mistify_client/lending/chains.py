"""The best chain of devices for the segments of a network, by dynamic programming (CrowdHMTware III-B2).

Tensors go from one helper to the next through this device. A part of a chain therefore costs the same
whichever parts are before and behind it, so that the search is exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple


class Part(NamedTuple):
    """Consecutive segments of a network that one device runs.

    Attributes:
        helper: Address of the helper; None for this device.
        start: Index of the first segment.
        end: Index of the segment behind the last one.
    """

    helper: str | None
    start: int
    end: int


@dataclass(frozen=True)
class HelperTimes:
    """The times of a helper for the segments and the tensors of one network.

    Attributes:
        fixed_ms: Milliseconds of each message with its answer that depend neither on bytes nor on segments,
            at least 0.
        byte_ms: Milliseconds for each byte sent or received.
        segment_ms: Milliseconds of each segment.
    """

    fixed_ms: float
    byte_ms: float
    segment_ms: Sequence[float]

    def sending_ms(self, size: int | None) -> float:
        """Return the milliseconds for some bytes; infinite for tensors that cannot be sent (None)."""
        return inf if size is None else self.byte_ms * size


class _Path(NamedTuple):
    """The fastest way to get the tensors before a segment to a device.

    Attributes:
        ms: Milliseconds so far.
        parts: The parts before that of the device.
        start: Index of the first segment of the device's part.
    """

    ms: float
    parts: tuple[Part, ...]
    start: int

    def after(self, milliseconds: float) -> "_Path":
        """Return the path after a segment on the same device."""
        return _Path(self.ms + milliseconds, self.parts, self.start)

    def moved(self, milliseconds: float, device: str | None, segment: int) -> "_Path":
        """Return the path to another device before a segment.

        Args:
            milliseconds: The time for it.
            device: Address of the helper that is left; None for this device.
        """
        part = (Part(device, self.start, segment),) if self.start < segment else ()
        return _Path(self.ms + milliseconds, (*self.parts, *part), segment)


@dataclass(frozen=True)
class ChainTimes:
    """The times of which those of all chains consist.

    Attributes:
        local_ms: Milliseconds of each segment on this device.
        helpers: Address of each helper that can be asked -> what it takes.
        sizes: Bytes of the tensors before each segment, and of the outputs; None if they cannot be sent.
    """

    local_ms: Sequence[float]
    helpers: Mapping[str, HelperTimes]
    sizes: Sequence[int | None]

    def part_ms(self, part: Part) -> float:
        """Return the milliseconds of a part; those of a helper with its message and its answer."""
        if part.helper is None:
            return sum(self.local_ms[part.start : part.end])
        helper = self.helpers[part.helper]
        transfers = helper.sending_ms(self.sizes[part.start]) + helper.sending_ms(self.sizes[part.end])
        return helper.fixed_ms + transfers + sum(helper.segment_ms[part.start : part.end])

    def chain_ms(self, chain: Sequence[Part]) -> float:
        """Return the milliseconds of a chain."""
        return sum(map(self.part_ms, chain))

    def best_chain(self) -> tuple[Part, ...]:
        """Return the chain with helpers that takes the least time; no parts if there is none.

        The time to reach a device before a segment is the least over staying there and coming from another
        one: positions x devices.
        """
        alone = _Path(0.0, (), 0)
        back = _Path(inf, (), 0)  # on this device, after a helper
        there: dict[str, _Path] = {}
        for segment, own_ms in enumerate(self.local_ms):
            here = alone if alone.ms <= back.ms else back
            alone, back = alone.after(own_ms), back.after(own_ms)
            for address, helper in self.helpers.items():
                sending_ms = helper.fixed_ms + helper.sending_ms(self.sizes[segment])
                path = there.get(address)
                if path is None or here.ms + sending_ms < path.ms:
                    path = here.moved(sending_ms, None, segment)
                there[address] = path = path.after(helper.segment_ms[segment])
                received_ms = helper.sending_ms(self.sizes[segment + 1])
                if path.ms + received_ms < back.ms:
                    back = path.moved(received_ms, address, segment + 1)
        return () if back.ms == inf else back.moved(0.0, None, len(self.local_ms)).parts
