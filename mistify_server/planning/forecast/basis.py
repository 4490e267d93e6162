"""The basis of forecasts: what they share for all batches of one source."""

from collections.abc import Sequence
from functools import cache
from typing import Final

from mistify_server.planning.forecast.algorithm_choice import Chooser
from mistify_server.planning.forecast.history import ForecastHistory
from mistify_server.planning.forecast.records import subject_of
from mistify_server.planning.forecast.scaling import CostScaling
from mistify_server.planning.latest import LatestValues
from mistify_server.store.edges import EdgeHistory, EdgeRecord
from mistify_server.store.plans import BatchPlan
from mistify_server.tasks.estimates import EdgeEstimates

#: Maximum number of edges from which a forecast learns.
_RECORDS: Final = 300

#: Number of bases that are kept: a search for a pace makes dozens, each with a matrix of all edges.
_KEPT: Final = 8


class ForecastBasis:
    """The basis of the forecasts of a source's networks, whatever their limits.

    Args:
        plan: A plan of the source, of which the nodes do not matter.
        estimates: Estimates from the source's inspection.
        records: Records of similar edges, oldest first.

    Attributes:
        subject: Digest of the source and its data.
    """

    def __init__(self, plan: BatchPlan, estimates: EdgeEstimates, records: Sequence[EdgeRecord]) -> None:
        self.estimates = estimates
        self.subject = subject_of(estimates.features, plan.recipe.data)
        self.history = ForecastHistory(records, estimates.profiles)
        self.chooser = Chooser(
            estimates.features, self.subject, estimates.profiles, self.history, estimates.nats
        )
        self.scaling = CostScaling(estimates.scaled, plan.source_costs)


class ForecastBases:
    """Makes the bases of forecasts; batches of the same source share one.

    Each model and its data keep the edges that they had at the first forecast: for batches that are planned
    at the same time.

    Args:
        history: The edges of earlier jobs.
    """

    def __init__(self, history: EdgeHistory) -> None:
        self._edges = cache(history.edges)
        self._made: LatestValues[tuple[object, ...], ForecastBasis] = LatestValues(_KEPT)

    def of(self, plan: BatchPlan) -> ForecastBasis | None:
        """Return the basis of a plan's forecast; None if its model is packaged unchanged."""
        estimates = plan.estimates
        if estimates is None:
            return None
        key = estimates, plan.recipe.data, plan.source_costs
        return self._made.get(key, lambda: self._make(plan, estimates))

    def _make(self, plan: BatchPlan, estimates: EdgeEstimates) -> ForecastBasis:
        subject = subject_of(estimates.features, plan.recipe.data)
        return ForecastBasis(plan, estimates, self._edges(subject, estimates.features.kind, _RECORDS))
