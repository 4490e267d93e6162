"""The pace of a batch: the factor of all numbers of training steps with which it is done in a given time."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Final, NamedTuple, TypeAlias

from executors.contract.profile import AlgorithmProfile
from mistify.config.algorithm import AUTO
from mistify.jobs.formatting import duration
from mistify.jobs.job import Goal
from mistify.jobs.plan import PlannedBatch
from mistify_server.planning.forecast.forecast import Forecast
from mistify_server.store.plans import BatchPlan
from mistify_server.tasks.estimates import EdgeEstimates

#: The least and the greatest factor.
SLOWEST: Final = 16.0
FASTEST: Final = 1 / 64

#: The share of the time that is aimed at, the share that is enough, and the most forecasts on the way there.
_AIM: Final = 0.98
_ENOUGH: Final = 0.94
_REFINEMENTS: Final = 8

#: The most nodes of a tree for which restrictions are compared.
_MOST_COMPARED: Final = 64

#: The pace of the source's tuning in relation to that of the goals, as an alternative: sources that were
#: trained before gain little.
_LITTLE_TUNING: Final = 0.25

#: Share by which another algorithm has to be better than what is usually chosen.
_TOLERANCE: Final = 0.002

Forecaster: TypeAlias = Callable[[BatchPlan], Forecast | None]


class TooShortError(Exception):
    """The time is too short, even with the fewest steps.

    Attributes:
        seconds: The expected time with the fewest steps.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class PacedPlan(NamedTuple):
    """A plan that takes a given time, and for people: how many steps fit into it."""

    plan: BatchPlan
    note: str


class _Restriction(NamedTuple):
    """The algorithms to which a plan is restricted, and how much its source is tuned.

    Attributes:
        algorithms: The algorithms between which each node can choose.
        source_share: The pace of the source's tuning in relation to that of the goals.
    """

    algorithms: Mapping[str, AlgorithmProfile]
    source_share: float = 1.0


@dataclass(frozen=True)
class _Attempt:
    """A forecast with a pace.

    Attributes:
        plan: The plan with this pace, and with an algorithm for every node.
        planned: The batch with its expected times.
    """

    pace: float
    restriction: _Restriction
    plan: BatchPlan
    planned: PlannedBatch

    @property
    def mean(self) -> float | None:
        """The expected figure, averaged over the goals; None if the source's is unknown."""
        known = [edge.accuracy.middle for edge in self.planned.edges for _ in edge.goals if edge.accuracy]
        return fmean(known) if known else None


class Pacing:
    """Looks for the pace, and for the algorithms, with which a batch is best after a given time.

    Args:
        plan: A plan whose nodes have no algorithm.
        estimates: The plan's, with the steps of the settings as they are.
        goals: The goals of the batch by id.
        forecast_of: Returns the forecast of a plan.
        slots: Number of edges that are adapted concurrently.
        source_is_known: Whether a trial has shown what the source gains by its tuning.
    """

    def __init__(
        self,
        plan: BatchPlan,
        estimates: EdgeEstimates,
        goals: Mapping[str, Goal],
        forecast_of: Forecaster,
        *,
        slots: int,
        source_is_known: bool,
    ) -> None:
        self._plan = plan
        self._estimates = estimates
        self._goals = goals
        self._forecast_of = forecast_of
        self._slots = slots
        self._source_is_known = source_is_known

    def within(self, seconds: float) -> PacedPlan:
        """Return the plan that is expected to be best after a time.

        Raises:
            TooShortError: No plan takes so little time.
        """
        usual, *others = (self._longest(seconds, each) for each in self._restrictions())
        fitting = [each for each in (usual, *others) if each.planned.seconds <= seconds]
        if not fitting:
            raise TooShortError(min(each.planned.seconds for each in (usual, *others)))
        best = fitting[0]
        for each in fitting[1:]:
            if self._is_better(each, best):
                best = each
        longer = self._longest(2 * seconds, best.restriction)
        recipe = best.plan.recipe
        estimates = self._estimates.paced(recipe.pace, recipe.source_pace)
        nodes = best.plan.nodes
        if best.restriction.algorithms.keys() != usual.restriction.algorithms.keys():
            reason = (
                f"expected to be best on average after {duration(seconds)}, with the steps that fit into it"
            )
            nodes = tuple(node.model_copy(update={"choice": reason}) for node in nodes)
        plan = best.plan.model_copy(update={"estimates": estimates, "nodes": nodes})
        return PacedPlan(plan, self._note(seconds, best, longer))

    def _restrictions(self) -> Iterator[_Restriction]:
        """Yield the restrictions to compare; the first one is none.

        Algorithms with shared training are not tried alone: they do not suit all goals.
        """
        profiles = self._estimates.profiles
        yield _Restriction(profiles)
        if len(self._plan.nodes) > _MOST_COMPARED:
            return
        sets: list[Mapping[str, AlgorithmProfile]] = [profiles]
        if self._plan.recipe.algorithm == AUTO and len(profiles) > 1:
            sets += ({name: each} for name, each in profiles.items() if not each.shared_steps)
            yield from map(_Restriction, sets[1:])
        if self._source_is_known and self._estimates.source_steps:
            yield from (_Restriction(each, _LITTLE_TUNING) for each in sets)

    def _longest(self, seconds: float, restriction: _Restriction) -> _Attempt:
        """Return the attempt with the most steps that fit into a time; the shortest one if none fits.

        Times grow linearly with the pace as long as the algorithms stay the same, so that interpolation
        finds it at once.
        """
        low, high = self._attempt(FASTEST, restriction), self._attempt(SLOWEST, restriction)
        if high.planned.seconds <= seconds:
            return high
        for _ in range(_REFINEMENTS):
            if low.planned.seconds >= _ENOUGH * seconds:
                break
            slope = (high.pace - low.pace) / (high.planned.seconds - low.planned.seconds)
            aimed = low.pace + slope * (_AIM * seconds - low.planned.seconds)
            attempt = self._attempt(aimed, restriction)
            if attempt.planned.seconds <= seconds:
                low = attempt
            else:
                high = attempt
        return low

    def _attempt(self, pace: float, restriction: _Restriction) -> _Attempt:
        paces = {"pace": pace, "source_pace": restriction.source_share * pace}
        restricted = self._estimates.model_copy(update={"profiles": dict(restriction.algorithms)})
        estimates, recipe = restricted.paced(**paces), self._plan.recipe.model_copy(update=paces)
        forecast = self._forecast_of(self._plan.model_copy(update={"recipe": recipe, "estimates": estimates}))
        if forecast is None:
            raise ValueError("a plan with estimates has a forecast")
        return _Attempt(pace, restriction, forecast.plan, forecast.planned(self._goals, self._slots))

    def _is_better(self, attempt: _Attempt, other: _Attempt) -> bool:
        """Return whether the figure of an attempt is clearly better."""
        if attempt.mean is None or other.mean is None:
            return False
        return self._plan.recipe.data.validation_metric.lost(other.mean, attempt.mean) > _TOLERANCE

    def _note(self, seconds: float, best: _Attempt, longer: _Attempt) -> str:
        metric = self._plan.recipe.data.validation_metric
        note = f"{best.pace:.2g} times the usual training steps fit into {duration(seconds)}"
        if best.mean is None or longer.mean is None:
            return note
        return (
            f"{note}: {metric.shown(best.mean)} expected on average, "
            f"and {metric.shown(longer.mean)} in twice the time"
        )
