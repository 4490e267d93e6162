"""Nested networks: one training run for all goals in a range, with networks that share their weights.

A goal's network has the widths allowed by its limits, planned as for latency limits, with the first units of
each group and the weights of the enclosing network (`executors.pruning.elastic`). An edge takes no training
steps of its own unless it is tuned, so the training time of a job does not grow with the number of goals.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

import keras
import numpy as np

from executors.algorithms.nested.params import NestedParams
from executors.algorithms.nested.profile import segments_between
from executors.contract.assignment import Assignment
from executors.contract.executor import StuckError
from executors.contract.params import Params
from executors.contract.preparation import PreparationProgress
from executors.pruning.allocation import AllocationTerms, Weights, allocate
from executors.pruning.elastic import (
    NestedSegment,
    PreparedSegments,
    SegmentNetwork,
    SegmentTraining,
    first_units,
    saved,
    train_nested,
)
from executors.pruning.executor import PruningExecutor
from executors.pruning.state import PruningState
from executors.search.planning import weights_of
from executors.structure import Keep, Widths, analyse, narrow, trainable_weights
from executors.timing import activity
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS, Budget, Costs, exceeded
from mistify.jobs.formatting import excess

#: A function of maximum widths and limits that returns widths within the limits.
Within: TypeAlias = Callable[[Widths, Budget], Widths]

#: Networks of a segment with planned widths; the others are interpolated.
_SIZES: Final = 6

#: Resolution of the search for a goal's network between a segment's widest and narrowest networks.
_PLACES: Final = 256


class NestedExecutor(PruningExecutor):
    """Networks that share their weights, trained together before the first edge.

    Args:
        params: Settings of the algorithm in the config.
        prepared: The preparation, shared with other executors; None for one of its own.
    """

    _params: NestedParams

    def __init__(self, params: Params, prepared: PreparedSegments | None = None) -> None:
        super().__init__(params)
        self._prepared = prepared or PreparedSegments()
        self._added: list[NestedSegment] = []
        self._networks: dict[int, SegmentNetwork] = {}

    def prepare(self, assignment: Assignment, progress: PreparationProgress) -> bytes:
        """Train the segments required by the tightest limits of the goals."""
        self._extend(assignment, progress)
        return saved(self._segments)

    def for_edge(self) -> "NestedExecutor":
        """Return an executor for one edge, with the segments' networks that are compiled already."""
        return NestedExecutor(self._params, self._prepared)

    def init(self, assignment: Assignment) -> None:
        """Accept the parent's network; segments trained for the last one delivered remain."""
        if self._is_new(assignment.model):
            self._prepared.load(assignment.prepared)
            self._added, self._networks = [], {}
        self._assignment, self._current = assignment, None

    def measure(self) -> Costs:
        """Return the costs of the current network: at first the parent's, which is built only if needed."""
        if self._current is not None:
            return super().measure()
        assignment = self._assigned
        return costs_of(analyse(assignment.model, assignment.source.rules).network(), assignment.profiles)

    def preview(self, assignment: Assignment) -> keras.Model | None:
        """Return the network that the limits allow; None if no segment covers its size yet."""
        self._prepared.load(assignment.prepared)
        segment = _first_within(self._prepared.segments, assignment)
        if segment is None:
            return None
        source = assignment.source
        units = first_units(segment.order, _largest_within(segment, assignment))
        return narrow(analyse(segment.network(source), source.rules), units)

    def adjust(self, weights: Mapping[str, float]) -> None:
        """Do nothing: the limits determine the network."""

    def iterate(self) -> int:
        """Continue to the network of the budget; takes training steps if no segment covers its size yet."""
        assignment = self._assigned
        steps = self._extend(assignment, PreparationProgress())
        with activity("cutting"):
            self._show(assignment)
        over = excess(self.measure(), assignment.budget)
        if over:
            raise StuckError(f"{over} with every channel group at its minimum")
        return steps

    def _extend(self, assignment: Assignment, progress: PreparationProgress) -> int:
        """Train segments down to the size that the limits allow; return the number of steps."""
        if _first_within(self._segments, assignment) is not None:
            return 0
        source = assignment.source
        counts, _ = weights_of(self._whole(assignment))
        within, quickly = (partial(self._within, assignment, counts, quickly) for quickly in (False, True))
        last = self._segments[-1].narrowest if self._segments else source.widths
        narrowest = within(last, assignment.budget)
        if self._segments and narrowest == last:
            return 0
        largest, smallest = (source.network(widths).flops for widths in (last, narrowest))
        count = segments_between(largest / smallest)
        for number, end in enumerate(np.geomspace(largest, smallest, 1 + count)[1:]):
            last_one = number == count - 1
            part = progress.part(f"segment-{number}")
            if part:
                training = SegmentTraining.loaded(part)
            else:
                widths = narrowest if last_one else within(last, {FLOPS: end})
                training = self._begun(assignment, widths, quickly)
            self._added.append(self._trained(assignment, training, progress, number, count))
        return count * self._params.segment_steps

    def _trained(
        self,
        assignment: Assignment,
        training: SegmentTraining,
        progress: PreparationProgress,
        number: int,
        count: int,
    ) -> NestedSegment:
        """Train a segment to the end, and return it.

        Args:
            training: The training of the segment so far.
            progress: Receives the progress.
            number: Index of the segment among those that this call trains.
            count: Number of segments that this call trains.
        """
        source, steps, segment = assignment.source, self._params.segment_steps, training.segment

        def report(step: int, loss: float) -> None:
            progress.report(number * steps + step, count * steps, loss)

        def keep(part: SegmentTraining) -> None:
            progress.keep(f"segment-{number}", part.saved())

        smallest = source.network(segment.narrowest).flops
        at = replace(assignment, budget={FLOPS: smallest}, seed=assignment.seed + len(self._segments))
        state = PruningState.of(
            segment.network(source), at, self._structure_loss, optimizer_state=training.optimizer_state
        )
        return train_nested(training, state.at_start_of(at), steps, report, keep)

    def _begun(self, assignment: Assignment, narrowest: Widths, within: Within) -> SegmentTraining:
        """Return the untrained segment that follows the last one.

        Args:
            narrowest: The widths of its narrowest network.
            within: Returns the widths within limits, for the networks in between.
        """
        source = assignment.source
        if self._segments:
            last = self._segments[-1]
            keep, order = last.onward()
            widest = analyse(last.network(source), source.rules)
            model = narrow(widest, first_units(last.order, last.narrowest))
        else:
            whole = self._whole(assignment)
            values = whole.values(whole.compensation.moments(assignment.setup.train))
            keep, order = whole.masks.keep, {name: np.argsort(-worth) for name, worth in values.items()}
            model = whole.trainer.model
        narrowest = {name: min(narrowest[name], width) for name, width in _counted(keep).items()}
        largest, smallest = (source.network(at).flops for at in (_counted(keep), narrowest))
        sizes: list[Widths] = [_counted(keep)]
        for limit in np.geomspace(largest, smallest, _SIZES)[1:-1]:
            sizes.append({n: max(w, narrowest[n]) for n, w in within(sizes[-1], {FLOPS: limit}).items()})
        sizes.append(narrowest)
        columns = {name: np.array([size[name] for size in sizes]) for name in narrowest}
        weights = {name: variable.numpy() for name, variable in trainable_weights(model).items()}
        return SegmentTraining(NestedSegment(keep, order, columns, weights))

    def _show(self, assignment: Assignment) -> None:
        """Continue with the network that the limits allow, from the first segment that covers its size."""
        segments = self._segments
        number = next(
            (at for at, each in enumerate(segments) if _is_within(each, assignment)), len(segments) - 1
        )
        segment, network = segments[number], self._network_of(number, assignment)
        network.weights.show(first_units(segment.order, _largest_within(segment, assignment)))
        # Nothing that an earlier goal left in the trainer may have an effect.
        network.state.trainer.restart(assignment.seed)
        self._current = network.state.at_start_of(assignment)

    def _network_of(self, number: int, assignment: Assignment) -> SegmentNetwork:
        """Return the network of a segment, with what was compiled for earlier goals."""
        is_prepared = number < len(self._prepared.segments)
        networks = self._prepared.networks if is_prepared else self._networks
        if number not in networks:
            model = self._segments[number].network(assignment.source)
            networks[number] = SegmentNetwork.of(PruningState.of(model, assignment, self._structure_loss))
        return networks[number]

    @property
    def _segments(self) -> list[NestedSegment]:
        return [*self._prepared.segments, *self._added]

    @property
    def _assigned(self) -> Assignment:
        if self._assignment is None:
            raise RuntimeError("the executor has no assignment yet; call init first")
        return self._assignment

    @property
    def _state(self) -> PruningState:
        """The current network's state; at first that of a copy of the parent's network."""
        if self._current is None:
            self._current = self._state_of(self._assigned).at_start_of(self._assigned)
        return self._current

    def _within(
        self, assignment: Assignment, counts: Weights, quickly: bool, widths: Widths, limits: Budget
    ) -> Widths:
        """Return the most valuable widths within limits, or the least widths if none are within.

        Args:
            counts: Weight of each group.
            quickly: Accept widths that are slightly less valuable.
            widths: The initial widths.
            limits: Limits on costs.
        """
        source = assignment.source
        terms = AllocationTerms(limits, assignment.profiles, counts, {}, source)
        allocation = allocate(source, widths, terms, quickly=quickly)
        return allocation.widths if allocation else source.least_widths

    def _whole(self, assignment: Assignment) -> PruningState:
        """Return the state of the source."""
        return PruningState.of(narrow(assignment.source, {}), assignment, self._structure_loss)


def _first_within(segments: Iterable[NestedSegment], assignment: Assignment) -> NestedSegment | None:
    """Return the first segment with a network within the limits."""
    return next((segment for segment in segments if _is_within(segment, assignment)), None)


def _is_within(segment: NestedSegment, assignment: Assignment) -> bool:
    """Check whether a network of a segment is within the limits."""
    return _holds(assignment, segment.narrowest)


def _largest_within(segment: NestedSegment, assignment: Assignment) -> dict[str, int]:
    """Return the widths of a segment's largest network within the limits, or else of its narrowest."""
    places = range(_PLACES)
    place = bisect_left(places, True, key=lambda at: _holds(assignment, segment.widths(at / _PLACES)))
    return segment.widths(place / _PLACES)


def _holds(assignment: Assignment, widths: Widths) -> bool:
    """Check whether a network of these widths is within the limits."""
    network = assignment.source.network(widths)
    costs = costs_of(network, assignment.profiles, only=assignment.budget)
    return not exceeded(costs, assignment.budget)


def _counted(keep: Keep) -> dict[str, int]:
    return {name: int(kept.sum()) for name, kept in keep.items()}
