"""Where the blocks of a network run: all on this device, or some of them on helpers."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from mistify_client.lending.chains import ChainTimes, HelperTimes, Part
from mistify_client.lending.corrections import CorrectionHistory, Corrections, helpers_of
from mistify_client.lending.cuts import Cut
from mistify_client.lending.gains import is_much_faster
from mistify_client.lending.links import HelperSpeed, Link
from mistify_client.lending.speed import LocalSpeed

#: Seconds that a placement stays, unless it fails or this device alone is faster.
_DWELL_SECONDS: Final = 0.5

#: Seconds for which a decision holds: it takes a part of a millisecond, and conditions change more slowly.
_DECISION_SECONDS: Final = 0.02

#: The first inferences after a change are slower than the following ones, and teach nothing.
_FIRST: Final = 3


@dataclass(frozen=True)
class PlacedPart:
    """Consecutive segments on one device.

    Attributes:
        part: The segments, and the device.
        sent: Bytes that are sent to a helper; 0 for this device.
        expected_ms: Milliseconds of the part, with message and answer.
    """

    part: Part
    sent: int
    expected_ms: float


@dataclass(frozen=True)
class Placement:
    """Where the blocks run.

    Attributes:
        parts: A chain of devices; empty for this device alone.
        predicted_ms: Milliseconds of an inference.
        local_ms: Milliseconds of an inference on this device alone.
        correction_ms: Part of the prediction that was learned from measured times.
        is_decided_by_monitor: True if a monitor has decided that no helper is asked.
        is_beyond_rate: True if a helper that was chosen grants no further inferences at the moment.
    """

    parts: tuple[PlacedPart, ...]
    predicted_ms: float
    local_ms: float
    correction_ms: float = 0.0
    is_decided_by_monitor: bool = False
    is_beyond_rate: bool = False

    @property
    def is_local(self) -> bool:
        """True if all blocks run on this device."""
        return not self.parts

    @property
    def chain(self) -> tuple[Part, ...]:
        """The parts without their times."""
        return tuple(each.part for each in self.parts)

    @property
    def helpers(self) -> tuple[str, ...]:
        """The addresses of the helpers, in the order of their parts."""
        return helpers_of(self.chain)

    @property
    def reason(self) -> str:
        """The reason for it in one sentence."""
        alone = f"this device alone takes {self.local_ms:.1f} ms"
        if self.is_decided_by_monitor:
            return f"{alone}, and the monitor has chosen so"
        if self.is_beyond_rate:
            return f"{alone}, and the helper grants no more inferences a second"
        if self.is_local:
            return f"{alone}, and no helper is faster"
        is_first = self.parts[0].part.helper is None
        first, *others = self.parts[is_first:]
        last = self.parts[-1].part.end
        whole = (first.part.start, first.part.end) == (0, last)
        what = "everything" if whole else f"the network {_span(first.part, last)}"
        runs = [f"{first.part.helper} runs {what} ({_kilobytes(first.sent)})"]
        runs += [f"then {_share(each, last)}" for each in others]
        return f"{', '.join(runs)}, {self.predicted_ms:.1f} ms expected; {alone}"


def _share(placed: PlacedPart, last: int) -> str:
    """Return who runs a part of a network with some segments, and which one."""
    helper, span = placed.part.helper, _span(placed.part, last)
    return f"this device {span}" if helper is None else f"{helper} {span} ({_kilobytes(placed.sent)})"


def _span(part: Part, last: int) -> str:
    if part.end == last:
        return f"from cut {part.start} on"
    return f"to cut {part.end}" if part.start == 0 else f"from cut {part.start} to {part.end}"


def _kilobytes(size: int) -> str:
    return f"{size / 1000:,.0f} KB"


@dataclass(frozen=True)
class Reachable:
    """A helper that can be asked now.

    Attributes:
        speed: Its speed for the network.
    """

    link: Link
    speed: HelperSpeed


class PlacementChooser:
    """Chooses the placement of each inference by predicted times.

    The time of a chain is that of the blocks here, of the links and of the blocks there. What a device waits
    for its own processor after an answer is learned from the difference to measured times.

    Args:
        cuts: The cuts worth having.
        outputs: Bytes of the outputs of the network.
        local: The speed of this device.
        clock: Returns seconds.
    """

    def __init__(
        self,
        cuts: Sequence[Cut],
        outputs: int,
        local: LocalSpeed,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        sizes = {cut.segment: cut.size for cut in cuts}
        self._sizes = (*map(sizes.get, range(len(local.idle_ms))), outputs)
        self._local = local
        self._clock = clock
        self._current: tuple[Part, ...] = ()
        self._since = 0.0
        self._observed = 0
        self._decision: tuple[float, tuple[object, ...], Placement] | None = None
        self._history = CorrectionHistory(clock)

    def choose(self, helpers: Mapping[str, Reachable], input_bytes: int) -> Placement:
        """Return the placement of the next inference.

        Args:
            helpers: The helpers that can be asked now, by address.
            input_bytes: Bytes of the inputs of the network as they would be sent.
        """
        now, circumstances = self._clock(), (*helpers, input_bytes)
        if self._decision is not None:
            decided_at, same, placement = self._decision
            if same == circumstances and now - decided_at < _DECISION_SECONDS:
                return placement
        placement = self._decided(helpers, input_bytes)
        self._decision = now, circumstances, placement
        return placement

    def _decided(self, helpers: Mapping[str, Reachable], input_bytes: int) -> Placement:
        first, *others = self._sizes
        sizes = (None if first is None else input_bytes, *others)
        known = {address: _times(helper) for address, helper in helpers.items()}
        times = ChainTimes(self._local.segment_ms, known, sizes)
        corrections = self._history.corrections
        can_stay = all(part.helper is None or part.helper in helpers for part in self._current)
        here = self._placed((), times, corrections)
        current = self._placed(self._current, times, corrections) if can_stay else here
        offers = [self._placed(chain, times, corrections) for chain in _chains(times, corrections)]
        best = min(offers, key=lambda each: each.predicted_ms, default=here)
        return self._entered(self._better(here, current, best))

    def observe(self, placement: Placement, milliseconds: float) -> None:
        """Learn from an inference with helpers."""
        self._observed += 1
        if self._observed > _FIRST:
            self._history.add(
                placement.chain, milliseconds - placement.predicted_ms + placement.correction_ms
            )

    def correction(self, address: str) -> float:
        """Return the milliseconds by which inferences with a helper took longer than predicted."""
        return self._history.corrections.of_helper(address)

    def _better(self, here: Placement, current: Placement, best: Placement) -> Placement:
        """Return the placement to use: this device comes first, and small gains change nothing."""
        stays = self._clock() - self._since < _DWELL_SECONDS
        if not current.is_local and current.predicted_ms >= here.predicted_ms:
            current = here
        gains = is_much_faster(best.predicted_ms, current.predicted_ms)
        return best if gains and not stays else current

    def _entered(self, placement: Placement) -> Placement:
        if placement.chain != self._current:
            self._current, self._since, self._observed = placement.chain, self._clock(), 0
        return placement

    def _placed(self, chain: tuple[Part, ...], times: ChainTimes, corrections: Corrections) -> Placement:
        """Return the placement of a chain; without any, that on this device alone."""
        local_ms = self._local.predicted_ms
        if not chain:
            return Placement((), local_ms, local_ms)
        helped = len(helpers_of(chain))
        correction_ms = corrections.of_chain(chain)
        parts = []
        for part in chain:
            if part.helper is None:
                parts.append(PlacedPart(part, 0, times.part_ms(part)))
            else:
                expected_ms = max(0.0, times.part_ms(part) + correction_ms / helped)
                parts.append(PlacedPart(part, times.sizes[part.start] or 0, expected_ms))
        predicted_ms = sum(each.expected_ms for each in parts)
        return Placement(tuple(parts), predicted_ms, local_ms, correction_ms)


def _chains(times: ChainTimes, corrections: Corrections) -> list[tuple[Part, ...]]:
    """Return the best chain of all, and the best one with a single cut; without any, no parts.

    The search adds what each helper takes longer than predicted. What was learned of a whole chain, or a
    helper that takes less, it cannot know, so that single cuts are compared as well.
    """
    slower = {
        address: replace(helper, fixed_ms=helper.fixed_ms + max(0.0, corrections.of_helper(address)))
        for address, helper in times.helpers.items()
    }
    last = len(times.local_ms)
    before_ms = tuple(accumulate(times.local_ms, initial=0.0))
    singles = {}
    for address in times.helpers:
        for cut in (cut for cut in range(last) if times.sizes[cut] is not None):
            part = Part(address, cut, last)
            chain = (Part(None, 0, cut), part) if cut else (part,)
            helped_ms = times.part_ms(part) + corrections.of_chain(chain)
            singles[chain] = before_ms[cut] + max(0.0, helped_ms)
    single = min(singles, key=lambda chain: singles[chain], default=())
    return [chain for chain in (replace(times, helpers=slower).best_chain(), single) if chain]


def _times(helper: Reachable) -> HelperTimes:
    link, speed = helper.link, helper.speed
    return HelperTimes(link.round_trip_ms + max(0.0, speed.overhead_ms), link.byte_ms, speed.segment_ms)
