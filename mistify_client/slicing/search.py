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
    candidates: Sequence[SliceCandidate],
    limits: SliceLimits,
    predicted_ms: Callable[[SliceCandidate], float],
    cut: Callable[[SliceCandidate], CutSlice],
    measured: Callable[[CutSlice], MadeSlice],
) -> MadeSlice:
    """Return the slice of the highest quality within limits; one that is as small as possible if none is.

    More open units are not always better. A slice that turns out slower than predicted corrects the
    predictions of the others. One that takes too much memory is not measured.

    Args:
        candidates: The slices to choose from; at least one.
        predicted_ms: Returns the milliseconds of a slice before it is cut.
        cut: Cuts a slice.
        measured: Measures the slice that was cut last.
    """
    predictions = {candidate: predicted_ms(candidate) for candidate in candidates}
    left, cuts = list(candidates), list[CutSlice]()
    while left:
        fast = [one for one in left if _within(predictions[one], limits.latency_ms)]
        chosen = _best(fast, predictions) if fast else _smallest(left, predictions)
        left = [one for one in left if _is_narrower(one, chosen)]
        cuts.append(cut(chosen))
        if not _within(cuts[-1].memory_bytes, limits.memory_bytes):
            continue
        made = measured(cuts[-1])
        if made.fits(limits) or not fast or not left:
            return made
        slower = made.latency.median_ms / predictions[chosen]
        predictions = {one: slower * ms for one, ms in predictions.items()}
    return measured(cut(min(cuts, key=lambda one: one.memory_bytes).candidate))


def _best(
    candidates: Sequence[SliceCandidate], predictions: Mapping[SliceCandidate, float]
) -> SliceCandidate:
    """Return the candidate of the highest quality; of equal ones the fastest."""
    return max(candidates, key=lambda one: (one.quality, -predictions[one]))


def _smallest(
    candidates: Sequence[SliceCandidate], predictions: Mapping[SliceCandidate, float]
) -> SliceCandidate:
    """Return the fastest candidate; of equal ones the one with the fewest units."""
    return min(candidates, key=lambda one: (predictions[one], sum(one.widths)))


def _is_narrower(one: SliceCandidate, other: SliceCandidate) -> bool:
    """Check whether a slice has fewer units in any group, so that it may take less."""
    return any(own < most for own, most in zip(one.widths, other.widths, strict=True))


def _within(value: float, limit: float | None) -> bool:
    return limit is None or value <= limit
