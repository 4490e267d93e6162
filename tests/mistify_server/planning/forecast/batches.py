"""Batches with one goal or many, and their forecasts."""

from collections.abc import Sequence

import pytest

from mistify.config.data.targets import Target
from mistify.config.package.branches import BranchesConfig
from mistify.costs.budget import FLOPS
from mistify.jobs.job import Goal
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.plan import PlannedBatch
from mistify_server.planning.forecast.basis import ForecastBasis
from mistify_server.planning.forecast.batch_time import STARTING_SECONDS
from mistify_server.planning.forecast.forecast import Forecast
from mistify_server.store.edges import EdgeRecord
from mistify_server.store.plans import BatchPlan
from mistify_server.tasks.estimates import EdgeEstimates, SourceTrial
from tests.mistify_server.planning.forecast.histories import FEATURES, PROFILES

SOURCE = {FLOPS: 10_000.0}
PROSPECTS = EdgeEstimates(
    features=FEATURES,
    source_steps=200,
    profiles=PROFILES,
    scaled=tuple({FLOPS: SOURCE[FLOPS] * 4.0**place} for place in range(-4, 2)),
    accuracy=0.8,
)


def planned(
    plan: BatchPlan,
    estimates: EdgeEstimates,
    targets: tuple[Target, ...],
    records: Sequence[EdgeRecord] = (),
    *,
    share: float = 0.5,
    branches: BranchesConfig | None = None,
    trial: SourceTrial | None = None,
) -> PlannedBatch:
    """Return a batch with one goal at a share of the source's costs."""
    budget = {FLOPS: share * SOURCE[FLOPS]}
    node = plan.nodes[0].model_copy(update={"goals": ("a",), "budget": budget, "targets": targets})
    exceed = {FLOPS: share * SOURCE[FLOPS]} if share > 1 else {}
    asked = plan.model_copy(
        update={"source_costs": SOURCE, "estimates": estimates, "nodes": (node,), "exceed": exceed}
    )
    goal = Goal(id="a", batch=0, spec=PackageSpec(budget, targets=targets, branches=branches))
    forecast = Forecast(asked, ForecastBasis(asked, estimates, records), trial=trial)
    batch = forecast.planned({"a": goal}, 1)
    check_work(forecast.with_work({"a": goal}), batch)
    return batch


def tuned_by(tune_steps: int, max_steps: int) -> EdgeEstimates:
    """Return estimates for one algorithm that cuts within 100 steps."""
    profile = PROFILES["morphnet"].model_copy(update={"tune_steps": tune_steps, "max_steps": max_steps})
    return PROSPECTS.model_copy(update={"profiles": {"morphnet": profile}})


def many_planned(plan: BatchPlan, goals: int, algorithm: str = "") -> PlannedBatch:
    """Return a path of goals down to a quarter, for which MorphNet or nested networks may be chosen."""
    nested = PROFILES["morphnet"].model_copy(
        update={
            "edge_overhead": 50,
            "preparation": (1_200,) * 33,
            "preparation_step": 1.5,
            "shared_steps": 700,
            "least_path": 32,
            "adaptation": (0,) * 33,
            "tune_steps": 0,
        }
    )
    profiles = {"morphnet": PROFILES["morphnet"], "nested": nested}
    estimates = PROSPECTS.model_copy(update={"profiles": profiles, "step_seconds": 0.01})
    names = [f"g{number}" for number in range(goals)]
    budgets = [{FLOPS: SOURCE[FLOPS] * 0.25 ** ((number + 1) / goals)} for number in range(goals)]
    nodes = tuple(
        plan.nodes[0].model_copy(
            update={
                "index": number,
                "parent": number - 1 if number else None,
                "goals": (names[number],),
                "budget": budgets[number],
                "targets": (),
                "algorithm": algorithm,
            }
        )
        for number in range(goals)
    )
    asked = plan.model_copy(update={"source_costs": SOURCE, "estimates": estimates, "nodes": nodes})
    of_plan = {
        name: Goal(id=name, batch=0, spec=PackageSpec(of)) for name, of in zip(names, budgets, strict=True)
    }
    forecast = Forecast(asked, ForecastBasis(asked, estimates, ()))
    batch = forecast.planned(of_plan, 1)
    check_work(forecast.with_work(of_plan), batch)
    return batch


def check_work(plan: BatchPlan, batch: PlannedBatch) -> None:
    """Check that the work in a plan is that of the forecast."""
    assert [node.steps for node in plan.nodes] == [edge.steps for edge in batch.edges]
    assert [node.seconds + node.packaging_seconds for node in plan.nodes] == [
        edge.seconds for edge in batch.edges
    ]
    assert plan.source_seconds + STARTING_SECONDS == pytest.approx(batch.source_seconds)
    assert plan.preparing_seconds == {of.algorithm: of.seconds for of in batch.preparations}
