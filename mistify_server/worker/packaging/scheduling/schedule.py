"""Schedules of operators, the memory that they take, and an order that takes little of it."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Step:
    """An operator that runs.

    Attributes:
        operator: Number of the operator in its graph; several steps may run the same one.
        inputs: Tensors that it reads, without constants.
        outputs: Tensors that it writes.
    """

    operator: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Schedule:
    """The steps of a graph in order.

    Attributes:
        steps: Each step follows those that write its inputs.
        sizes: Bytes of each tensor.
        inputs: Tensors that callers provide.
        outputs: Tensors that callers receive.
        after: Operators that have to run earlier for other reasons than their outputs, by operator.
    """

    steps: tuple[Step, ...]
    sizes: Mapping[int, int]
    inputs: Collection[int]
    outputs: Collection[int]
    after: Mapping[int, Collection[int]]

    @cached_property
    def first(self) -> dict[int, int]:
        """The position of the step that writes each tensor; 0 for inputs."""
        written = {tensor: at for at, step in enumerate(self.steps) for tensor in step.outputs}
        return dict.fromkeys(self.inputs, 0) | written

    @cached_property
    def last(self) -> dict[int, int]:
        """The position of the last step that needs each tensor; LiteRT keeps inputs and outputs."""
        read = {tensor: at for at, step in enumerate(self.steps) for tensor in step.inputs}
        return self.first | read | dict.fromkeys([*self.inputs, *self.outputs], len(self.steps) - 1)

    @cached_property
    def live(self) -> npt.NDArray[np.int64]:
        """Bytes of all tensors that exist during each step [steps]."""
        changes = np.zeros(len(self.steps) + 1, np.int64)
        for tensor, at in self.first.items():
            changes[at] += self.sizes[tensor]
            changes[self.last[tensor] + 1] -= self.sizes[tensor]
        return changes.cumsum()[:-1]

    @property
    def peak(self) -> int:
        """The most bytes that exist at once."""
        return int(self.live.max(initial=0))


def with_least_memory(schedule: Schedule) -> Schedule:
    """Return the schedule itself or a reordered one, whichever has the lower peak.

    The new order is made from its end: each step is the one, of those whose results are all consumed by
    later steps, before which the fewest bytes have to exist.
    """
    order = _from_the_end(schedule)
    reordered = replace(schedule, steps=tuple(schedule.steps[at] for at in order))
    return min(schedule, reordered, key=lambda one: one.peak)


def _from_the_end(schedule: Schedule) -> list[int]:
    """Return the positions of the steps in a new order."""
    steps, sizes = schedule.steps, schedule.sizes
    earlier = _earlier(schedule)
    later = np.zeros(len(steps), int)
    for positions in earlier:
        later[list(positions)] += 1
    ready = {at for at, count in enumerate(later) if count == 0}
    live, order = set(schedule.outputs), list[int]()

    def added(at: int) -> int:
        needed = sum(sizes[tensor] for tensor in {*steps[at].inputs} - live)
        return needed - sum(sizes[tensor] for tensor in steps[at].outputs)

    while ready:
        at = min(ready, key=lambda at: (added(at), -at))
        ready.remove(at)
        order.append(at)
        live = (live - {*steps[at].outputs}) | {*steps[at].inputs}
        for before in earlier[at]:
            later[before] -= 1
            if later[before] == 0:
                ready.add(before)
    return order[::-1]


def _earlier(schedule: Schedule) -> Sequence[Collection[int]]:
    """Return for each position those of all steps that have to run before."""
    writers = {tensor: at for at, step in enumerate(schedule.steps) for tensor in step.outputs}
    of_operator = defaultdict[int, list[int]](list)
    for at, step in enumerate(schedule.steps):
        of_operator[step.operator].append(at)
    return [
        {writers[tensor] for tensor in step.inputs if tensor in writers}
        | {at for operator in schedule.after.get(step.operator, ()) for at in of_operator[operator]}
        for step in schedule.steps
    ]
