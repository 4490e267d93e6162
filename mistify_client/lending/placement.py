"""Where the blocks of a network run: all on this device, or the last ones on a helper."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from mistify_client.lending.cuts import Cut
from mistify_client.lending.gains import is_much_faster
from mistify_client.lending.links import HelperSpeed, Link
from mistify_client.lending.speed import LocalSpeed

#: Seconds that a placement stays, unless it fails or this device alone is faster.
_DWELL_SECONDS: Final = 0.5

#: Seconds for which the difference between predicted and measured times counts.
_CORRECTION_SECONDS: Final = 30.0

#: The number of differences that count, and the fewest that say anything. The first inferences after a change
#: are slower than the following ones, and do not count.
_RECENT: Final = 9
_FEWEST: Final = 5
_FIRST: Final = 3


@dataclass(frozen=True)
class Placement:
    """Where the blocks run.

    Attributes:
        helper: Address of the helper; None for this device alone.
        cut: Where the network is cut; None for this device alone.
        predicted_ms: Milliseconds of an inference.
        remote_ms: Milliseconds of them that this device waits for the helper.
        local_ms: Milliseconds of an inference on this device alone.
        is_told: True if a monitor has decided that no helper is asked.
    """

    helper: str | None
    cut: Cut | None
    predicted_ms: float
    remote_ms: float
    local_ms: float
    is_told: bool = False

    @property
    def is_local(self) -> bool:
        """True if all blocks run on this device."""
        return self.helper is None

    @property
    def reason(self) -> str:
        """The reason for it in one sentence."""
        alone = f"this device alone takes {self.local_ms:.1f} ms"
        if self.is_told:
            return f"{alone}, and the monitor has chosen so"
        if self.helper is None or self.cut is None:
            return f"{alone}, and no helper is faster"
        part = "everything" if self.cut.segment == 0 else f"the network from cut {self.cut.segment} on"
        sent = f"{self.cut.size / 1000:,.0f} KB"
        return f"{self.helper} runs {part} ({sent}, {self.predicted_ms:.1f} ms expected); {alone}"


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

    The time of a cut is that of the blocks here, of the link and of the blocks there. What a device waits for
    its own processor after an answer is learned from the difference to measured times.

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
        self._cuts = cuts
        self._outputs = outputs
        self._local = local
        self._clock = clock
        self._current: tuple[str, int] | None = None
        self._since = 0.0
        self._observed = 0
        self._corrections: dict[str, deque[tuple[float, float]]] = {}

    def choose(self, helpers: Mapping[str, Reachable], input_bytes: int) -> Placement:
        """Return the placement of the next inference.

        Args:
            helpers: The helpers that can be asked now, by address.
            input_bytes: Bytes of the inputs of the network as they would be sent.
        """
        cuts = [Cut(0, input_bytes) if cut.segment == 0 else cut for cut in self._cuts]
        local_ms = self._local.predicted_ms
        here = Placement(None, None, local_ms, 0.0, local_ms)
        offers = {
            (address, cut.segment): self._predicted(address, helper, cut, local_ms)
            for address, helper in helpers.items()
            for cut in cuts
        }
        current = here if self._current is None else offers.get(self._current, here)
        best = min(offers.values(), key=lambda each: each.predicted_ms, default=here)
        return self._entered(self._better(here, current, best))

    def observe(self, placement: Placement, milliseconds: float) -> None:
        """Learn from an inference with a helper."""
        self._observed += 1
        if placement.helper is not None and self._observed > _FIRST:
            correction = milliseconds - placement.predicted_ms + self.correction(placement.helper)
            known = self._corrections.setdefault(placement.helper, deque(maxlen=_RECENT))
            known.append((self._clock(), correction))

    def _better(self, here: Placement, current: Placement, best: Placement) -> Placement:
        """Return the placement to use: this device comes first, and small gains change nothing."""
        stays = self._clock() - self._since < _DWELL_SECONDS
        if not current.is_local and current.predicted_ms >= here.predicted_ms:
            current = here
        gains = is_much_faster(best.predicted_ms, current.predicted_ms)
        return best if gains and not stays else current

    def _entered(self, placement: Placement) -> Placement:
        chosen = None
        if placement.helper is not None and placement.cut is not None:
            chosen = placement.helper, placement.cut.segment
        if chosen != self._current:
            self._current, self._since, self._observed = chosen, self._clock(), 0
        return placement

    def _predicted(self, address: str, helper: Reachable, cut: Cut, local_ms: float) -> Placement:
        remote_ms = helper.link.predicted_ms(cut.size, self._outputs) + helper.speed.predicted_ms(cut.segment)
        remote_ms = max(0.0, remote_ms + self.correction(address))
        total = self._local.predicted_segments_ms(cut.segment) + remote_ms
        return Placement(address, cut, total, remote_ms, local_ms)

    def correction(self, address: str) -> float:
        """Return the milliseconds by which inferences with a helper took longer than predicted."""
        since = self._clock() - _CORRECTION_SECONDS
        recent = [each for at, each in self._corrections.get(address, ()) if at >= since]
        return median(recent) if len(recent) >= _FEWEST else 0.0
