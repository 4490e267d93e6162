"""The choice of a slice: the best one within limits, measured before it counts (NN-Factory 3.5)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mistify.package.manifest import MeasuredLatency
from mistify_client.slicing.candidates import SliceCandidate


@dataclass(frozen=True)
class SliceLimits:
    """The most that a slice may take on this device.

    Attributes:
        latency_ms: Milliseconds of one inference; None for any number.
        memory_bytes: Bytes of constants and of activations alive at once; None for any number.
    """

    latency_ms: float | None = None
    memory_bytes: float | None = None


@dataclass(frozen=True, eq=False)
class CutSlice:
    """A slice in a file.

    Attributes:
        network: Its `.tflite`, which the next slice replaces.
        memory_bytes: Bytes of constants and of activations alive at once.
    """

    candidate: SliceCandidate
    network: Path
    memory_bytes: float


@dataclass(frozen=True, eq=False)
class MadeSlice(CutSlice):
    """A slice that was cut and measured."""

    latency: MeasuredLatency

    def fits(self, limits: SliceLimits) -> bool:
        """Check whether a slice is within limits."""
        return _within(self.latency.median_ms, limits.latency_ms) and _within(
            self.memory_bytes, limits.memory_bytes
        )


def best_slice(
    limits: SliceLimits,
    predicted_ms: Mapping[SliceCandidate, float],
    cut: Callable[[SliceCandidate], CutSlice],
    measured: Callable[[CutSlice], MadeSlice],
) -> MadeSlice:
    """Return the slice of the highest quality within limits; one that is as small as possible if none is.

    More open units are not always better. A slice that turns out slower than predicted corrects the
    predictions of the others. One that takes too much memory is not measured.

    Args:
        predicted_ms: The slices to choose from, at least one, each with its predicted milliseconds.
        cut: Cuts a slice.
        measured: Measures the slice that was cut last.
    """
    left, cuts = list(predicted_ms), list[CutSlice]()
    while left:
        fast = [one for one in left if _within(predicted_ms[one], limits.latency_ms)]
        chosen = _best(fast, predicted_ms) if fast else _smallest(left, predicted_ms)
        left = [one for one in left if _is_narrower(one, chosen)]
        cuts.append(cut(chosen))
        if not _within(cuts[-1].memory_bytes, limits.memory_bytes):
            continue
        made = measured(cuts[-1])
        if made.fits(limits) or not fast or not left:
            return made
        slower = made.latency.median_ms / predicted_ms[chosen]
        predicted_ms = {one: slower * ms for one, ms in predicted_ms.items()}
    return measured(cut(min(cuts, key=lambda one: one.memory_bytes).candidate))


def _best(
    candidates: Sequence[SliceCandidate], predicted_ms: Mapping[SliceCandidate, float]
) -> SliceCandidate:
    """Return the candidate of the highest quality; of equal ones the fastest."""
    return max(candidates, key=lambda one: (one.quality, -predicted_ms[one]))


def _smallest(
    candidates: Sequence[SliceCandidate], predicted_ms: Mapping[SliceCandidate, float]
) -> SliceCandidate:
    """Return the fastest candidate; of equal ones the one with the fewest units."""
    return min(candidates, key=lambda one: (predicted_ms[one], sum(one.widths)))


def _is_narrower(one: SliceCandidate, other: SliceCandidate) -> bool:
    """Check whether a slice has fewer units in any group, so that it may take less."""
    return any(own < most for own, most in zip(one.widths, other.widths, strict=True))


def _within(value: float, limit: float | None) -> bool:
    return limit is None or value <= limit
