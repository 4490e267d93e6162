"""The choice of a slice: the best one within limits, measured before it counts (NN-Factory 3.5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
class MadeSlice:
    """A slice that was cut and measured.

    Attributes:
        network: Content of its `.tflite`.
        memory_bytes: Bytes of constants and of activations alive at once.
    """

    candidate: SliceCandidate
    network: bytes
    latency: MeasuredLatency
    memory_bytes: float

    def fits(self, limits: SliceLimits) -> bool:
        """Check whether a slice is within limits."""
        return _within(self.latency.median_ms, limits.latency_ms) and _within(
            self.memory_bytes, limits.memory_bytes
        )


def best_slice(
    candidates: Sequence[SliceCandidate],
    limits: SliceLimits,
    predicted_ms: Callable[[SliceCandidate], float],
    make: Callable[[SliceCandidate], MadeSlice],
) -> MadeSlice:
    """Return the slice of the highest quality within limits; the smallest one if none is.

    More open units are not always better. A slice that turns out slower than predicted corrects the
    predictions of the others.

    Args:
        candidates: The slices to choose from; at least one.
        predicted_ms: Returns the milliseconds of a slice before it is cut.
        make: Cuts and measures a slice.
    """
    predictions = {candidate: predicted_ms(candidate) for candidate in candidates}
    left = [one for one in candidates if _within(predictions[one], limits.latency_ms)]
    while left:
        made = make(max(left, key=lambda one: (one.quality, -predictions[one])))
        if made.fits(limits):
            return made
        slower = made.latency.median_ms / predictions[made.candidate]
        left = [
            one
            for one in left
            if sum(one.widths) < sum(made.candidate.widths)
            and _within(predictions[one] * slower, limits.latency_ms)
        ]
    return make(min(candidates, key=lambda one: (predictions[one], sum(one.widths))))


def _within(value: float, limit: float | None) -> bool:
    return limit is None or value <= limit
