"""The basis of forecasts is shared by batches of the same source, and by no others."""

from collections.abc import Mapping
from typing import Any

import pytest

from mistify.costs.budget import FLOPS
from mistify_server.planning.forecast.basis import ForecastBases
from mistify_server.planning.forecast.records import subject_of
from mistify_server.store.edges import EdgeRecord
from mistify_server.store.plans import BatchPlan
from tests.mistify_server.planning.forecast.batches import PROSPECTS, SOURCE
from tests.mistify_server.planning.forecast.histories import case, seen


class Edges:
    """An edge of each source that is asked about."""

    def __init__(self) -> None:
        self.reads: list[str] = []

    def edges(self, subject: str, kind: str, limit: int) -> list[EdgeRecord]:
        self.reads.append(subject)
        return [seen(case(subject=subject), lost=0.1)]


@pytest.fixture
def asked(plan: BatchPlan) -> BatchPlan:
    return plan.model_copy(update={"source_costs": SOURCE, "estimates": PROSPECTS})


def test_batches_of_one_source_share_a_basis_whatever_they_ask_for(asked: BatchPlan) -> None:
    edges = Edges()
    bases = ForecastBases(edges)
    other = asked.model_copy(update={"nodes": (), "exceed": {FLOPS: 2e4}})
    assert bases.of(other) is bases.of(asked)
    assert len(edges.reads) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"estimates": PROSPECTS.model_copy(update={"step_seconds": 1.0})},
        {"source_costs": {FLOPS: 2 * SOURCE[FLOPS]}},
        {"train": "other data"},
    ],
)
def test_other_sources_have_bases_of_their_own(asked: BatchPlan, changes: Mapping[str, Any]) -> None:
    bases = ForecastBases(Edges())
    bases.of(asked)
    update = dict(changes)
    if "train" in update:
        data = asked.recipe.data.model_copy(update={"train": update.pop("train")})
        update["recipe"] = asked.recipe.model_copy(update={"data": data})
    other = asked.model_copy(update=update)
    basis = bases.of(other)
    assert basis is not None
    assert other.estimates is not None
    assert basis.estimates is other.estimates
    assert basis.subject == subject_of(other.estimates.features, other.recipe.data)
    assert basis.history.knows(basis.subject)
    assert basis.scaling.halvings({FLOPS: 5e3}) == pytest.approx(
        {1e4: 1.0, 2e4: 2.0}[other.source_costs[FLOPS]]
    )


def test_a_model_that_is_packaged_unchanged_has_no_basis(plan: BatchPlan) -> None:
    assert ForecastBases(Edges()).of(plan.model_copy(update={"estimates": None})) is None
