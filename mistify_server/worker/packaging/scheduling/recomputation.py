"""Tensors that are computed twice, so that they need not be kept in between (CrowdHMTware III-C2)."""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import numpy.typing as npt

from mistify_server.worker.packaging.scheduling.schedule import Schedule, Step

#: Tensors considered in each round, largest first.
_CONSIDERED = 24

#: Exponent of the bytes at a step: their sum is a smooth maximum, since many steps may be near the peak.
_SHARPNESS = 16

#: The share by which a repetition has to lower the smooth maximum.
_LEAST_GAIN = 1e-3


def with_recomputation(schedule: Schedule, repeatable: Collection[int]) -> Schedule:
    """Return a schedule with a lower peak, which repeats operators where their results are needed again.

    Args:
        repeatable: Operators that may run again: each writes one tensor, depends on its inputs alone, and
            takes little time.
    """
    while True:
        rounds = _Round(schedule, repeatable)
        best = min(rounds.repetitions(), key=lambda one: one.smooth_peak, default=None)
        if best is None or best.smooth_peak > (1 - _LEAST_GAIN) * rounds.smooth_peak:
            return schedule
        schedule = best.applied(schedule)


@dataclass(frozen=True)
class _Repetition:
    """A tensor that is computed again.

    Attributes:
        tensor: The tensor that need not be kept until then.
        at: Position of the first step that reads the new one in its place.
        steps: Steps to insert before; the last one writes the new tensor.
        sizes: Bytes of all new tensors.
        smooth_peak: The smooth maximum of live bytes with it.
    """

    tensor: int
    at: int
    steps: Sequence[Step]
    sizes: dict[int, int]
    smooth_peak: float

    def applied(self, schedule: Schedule) -> Schedule:
        (new,) = self.steps[-1].outputs
        reading = (
            replace(step, inputs=tuple(new if one == self.tensor else one for one in step.inputs))
            for step in schedule.steps[self.at :]
        )
        steps = (*schedule.steps[: self.at], *self.steps, *reading)
        return replace(schedule, steps=steps, sizes={**schedule.sizes, **self.sizes})


class _Round:
    """The possible repetitions of one schedule."""

    def __init__(self, schedule: Schedule, repeatable: Collection[int]) -> None:
        self._schedule, self._repeatable = schedule, repeatable
        self._writers = {tensor: step for step in schedule.steps for tensor in step.outputs}
        self._peak = schedule.peak
        self.smooth_peak = self._smooth(schedule.live)

    def repetitions(self) -> Iterator[_Repetition]:
        """Yield repetitions of tensors that only wait during the step with the peak."""
        schedule = self._schedule
        peak = int(schedule.live.argmax())
        step = schedule.steps[peak]
        waiting = [
            tensor
            for tensor, first in schedule.first.items()
            if first < peak < schedule.last[tensor] and tensor not in step.inputs and self._repeats(tensor)
        ]
        for tensor in sorted(waiting, key=lambda one: -schedule.sizes[one])[:_CONSIDERED]:
            positions = [at for at, own in enumerate(schedule.steps) if tensor in own.inputs]
            following = bisect_right(positions, peak)
            if tensor not in schedule.outputs and following < len(positions):
                before = positions[following - 1] if following else schedule.first[tensor]
                yield self._repetition(tensor, before, positions[following])

    def _repetition(self, tensor: int, before: int, at: int) -> _Repetition:
        """Return a tensor's repetition.

        Args:
            before: Position of the last step that needs the old one.
            at: Position of the first step that needs the new one.
        """
        schedule = self._schedule
        numbers, steps = count(max(schedule.sizes) + 1), list[Step]()
        repeated, live = dict[int, int](), schedule.live.copy()

        def again(one: int) -> int:
            """Return the number of a tensor that is there at the position, computed again if need be."""
            last = schedule.last[one]
            if one in repeated:
                return repeated[one]
            if one != tensor and (last >= at or not self._repeats(one)):
                live[last + 1 : at + 1] += schedule.sizes[one]
                return one
            writer = self._writers[one]
            inputs = tuple(map(again, writer.inputs))
            repeated[one] = next(numbers)
            steps.append(Step(writer.operator, inputs, (repeated[one],)))
            live[at] += schedule.sizes[one]
            return repeated[one]

        again(tensor)
        live[before + 1 : at + 1] -= schedule.sizes[tensor]
        sizes = {new: schedule.sizes[old] for old, new in repeated.items()}
        return _Repetition(tensor, at, steps, sizes, self._smooth(live))

    def _repeats(self, tensor: int) -> bool:
        return tensor in self._writers and self._writers[tensor].operator in self._repeatable

    def _smooth(self, live: npt.NDArray[np.int64]) -> float:
        return float(((live / self._peak) ** _SHARPNESS).sum())
