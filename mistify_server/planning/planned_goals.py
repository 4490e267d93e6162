"""The goals of a batch with their tree, forecast and pace, as submissions and plans need them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, starmap
from math import ceil
from typing import NamedTuple

from mistify.errors import invalid_config
from mistify.jobs.job import Goal
from mistify.jobs.plan import PlannedBatch
from mistify.parsing.validation import InvalidValue
from mistify.wording import counted
from mistify_server.planning.batch import InspectedBatch, ResolvedBatch
from mistify_server.planning.batch_plan import plan_batch
from mistify_server.planning.forecast.basis import ForecastBases
from mistify_server.planning.forecast.forecast import Forecast, forecast_of
from mistify_server.planning.forecast.pacing import PacedPlan, Pacing, TooShortError
from mistify_server.planning.forecast.unchanged import plan_unchanged
from mistify_server.planning.forecast.work import with_expected_work
from mistify_server.planning.limits import unreachable
from mistify_server.planning.rejection import reject
from mistify_server.store.plans import BatchPlan
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.tasks.results import WITHOUT_ONEDNN, Inspection


class PlannedGoals(NamedTuple):
    """A batch with its goals.

    Attributes:
        plan: The goal tree with an algorithm for every node.
        goals: The goals with warnings, in the order of the configs.
        forecast: None if the model is packaged unchanged.
        pacing: `PlannedBatch.pacing`.
    """

    plan: BatchPlan
    goals: list[Goal]
    forecast: Forecast | None
    pacing: str

    def to_planned_batch(self, inspection: Inspection, slots: int) -> PlannedBatch:
        """Return the batch with its expected costs, accuracies and times.

        Args:
            slots: Number of edges that are adapted concurrently.
        """
        by_id = _by_id(self.goals)
        planned = self.forecast.planned(by_id, slots) if self.forecast else plan_unchanged(self.plan, by_id)
        evidence = planned.evidence
        if not inspection.onednn:
            evidence = "; ".join(filter(None, (evidence, WITHOUT_ONEDNN)))
        return replace(
            planned,
            class_counts=inspection.class_counts,
            left_out=inspection.left_out,
            pacing=self.pacing,
            evidence=evidence,
        )


def plan_all(
    inspected: Sequence[InspectedBatch], problems: ProblemCollector, bases: ForecastBases, slots: int
) -> list[PlannedGoals]:
    """Return the goals of each batch with their tree, with precisions chosen.

    Args:
        problems: The problems so far, which are rejected together with limits that no network can meet.
        bases: See `plan_goals`.
        slots: See `plan_goals`.

    Raises:
        MistifyError: INVALID_CONFIG, INVALID_MODEL or INVALID_DATASET with all problems.
    """
    chosen = [batch.with_precisions() for batch in inspected]
    problems.add(chain.from_iterable(starmap(unreachable, chosen)))
    reject(problems.problems)
    return [plan_goals(batch.resolved, batch.inspection, bases, slots) for batch in chosen]


def plan_goals(
    resolved: ResolvedBatch, inspection: Inspection, bases: ForecastBases, slots: int
) -> PlannedGoals:
    """Return the goals of a batch with their tree, algorithms and warnings.

    Args:
        bases: Makes the bases of forecasts from the edges of all jobs.
        slots: Number of edges that are adapted concurrently.

    Raises:
        MistifyError: INVALID_CONFIG, the settings name a time that is too short.
    """
    plan, goals = plan_batch(resolved, inspection)
    plan, pacing = _paced(plan, resolved, _pacing(plan, goals, inspection, bases, slots))
    forecast = _forecast(inspection, bases, plan)
    plan, goals = with_expected_work(plan, goals, forecast)
    return PlannedGoals(plan, [_with_warnings(goal, inspection.left_out) for goal in goals], forecast, pacing)


def _forecast(inspection: Inspection, bases: ForecastBases, plan: BatchPlan) -> Forecast | None:
    return forecast_of(plan, bases, trial=inspection.trial)


def _pacing(
    plan: BatchPlan, goals: Sequence[Goal], inspection: Inspection, bases: ForecastBases, slots: int
) -> Pacing | None:
    """Return the search for a pace; None if nothing is trained."""
    if plan.estimates is None:
        return None
    forecast, known = partial(_forecast, inspection, bases), inspection.trial is not None
    return Pacing(plan, plan.estimates, _by_id(goals), forecast, slots=slots, source_is_known=known)


def _paced(plan: BatchPlan, resolved: ResolvedBatch, pacing: Pacing | None) -> PacedPlan:
    """Return a plan that takes the time that its settings name; unchanged if they name none."""
    seconds = resolved.seconds
    if seconds is None or pacing is None or plan.estimates is None:
        return PacedPlan(plan, "")
    if plan.estimates.step_seconds is None:
        return PacedPlan(plan, "the time is not kept: no training step could be timed")
    try:
        return pacing.within(seconds)
    except TooShortError as error:
        batch = resolved.batch
        least = f"at least {ceil(error.seconds)}s for {counted(len(batch.configs), 'goal')} with this model"
        wrong = InvalidValue(batch.algorithm.config["time"], least, "give them more time")
        place = f"[{batch.indices[0]}].algorithm.config.time"
        raise invalid_config([wrong.problem(place)]) from error


def _by_id(goals: Sequence[Goal]) -> Mapping[str, Goal]:
    return {goal.id: goal for goal in goals}


def _with_warnings(goal: Goal, left_out: Sequence[str]) -> Goal:
    """Return a goal with warnings about files in its data that are not read."""
    unread = (f"{files} are not read" for files in left_out)
    return replace(goal, warning="; ".join(filter(None, (goal.warning, *unread))))
