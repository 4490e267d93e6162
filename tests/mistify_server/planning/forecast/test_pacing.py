"""The pace of a batch, found by the forecasts of its time."""

from statistics import fmean

import pytest

from executors.contract.profile import AlgorithmProfile
from mistify.costs.budget import FLOPS
from mistify.jobs.job import Goal
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.plan import PlannedBatch
from mistify_server.planning.forecast.basis import ForecastBasis
from mistify_server.planning.forecast.forecast import Forecast
from mistify_server.planning.forecast.pacing import FASTEST, SLOWEST, Pacing, TooShortError
from mistify_server.store.plans import BatchPlan, NodePlan
from mistify_server.tasks.estimates import EdgeEstimates
from tests.mistify_server.planning.forecast.batches import PROSPECTS, SOURCE

SHARES = {"a": 0.5, "b": 0.25}

#: A second for ten steps of training.
TIMED = PROSPECTS.model_copy(update={"step_seconds": 0.1})

ALONE = TIMED.model_copy(update={"profiles": {"morphnet": PROSPECTS.profiles["morphnet"]}})


def budget(name: str) -> dict[str, float]:
    return {FLOPS: SHARES[name] * SOURCE[FLOPS]}


GOALS = {name: Goal(id=name, batch=0, spec=PackageSpec(budget(name))) for name in SHARES}


def with_goals(plan: BatchPlan, estimates: EdgeEstimates, algorithm: str) -> BatchPlan:
    """Return a plan with the goals on one path."""
    nodes = tuple(
        NodePlan(
            index=index,
            parent=index - 1 if index else None,
            budget=budget(name),
            targets=(),
            seed=0,
            goals=(name,),
        )
        for index, name in enumerate(SHARES)
    )
    recipe = plan.recipe.model_copy(update={"algorithm": algorithm})
    changes = {"source_costs": SOURCE, "estimates": estimates, "nodes": nodes, "exceed": {}, "recipe": recipe}
    return plan.model_copy(update=changes)


def forecast_of(plan: BatchPlan) -> Forecast:
    assert plan.estimates is not None
    return Forecast(plan, ForecastBasis(plan, plan.estimates, ()))


def paced(
    plan: BatchPlan,
    estimates: EdgeEstimates,
    seconds: float,
    algorithm: str = "auto",
    *,
    known: bool = False,
) -> tuple[BatchPlan, str]:
    asked = with_goals(plan, estimates, algorithm)
    return Pacing(asked, estimates, GOALS, forecast_of, slots=1, source_is_known=known).within(seconds)


def expected(plan: BatchPlan) -> PlannedBatch:
    return forecast_of(plan).planned(GOALS, 1)


@pytest.mark.parametrize("estimates", [ALONE, TIMED])
@pytest.mark.parametrize("seconds", [60.0, 150.0, 600.0])
def test_the_steps_fill_the_time(plan, estimates, seconds) -> None:
    found, note = paced(plan, estimates, seconds)
    assert 0.9 * seconds <= expected(found).seconds <= seconds
    assert found.estimates == estimates.paced(found.recipe.pace, found.recipe.source_pace)
    assert all(node.algorithm for node in found.nodes)
    assert f"{found.recipe.pace:.2g} times the usual training steps fit into" in note
    assert "in twice the time" in note


def test_more_time_brings_better_networks(plan) -> None:
    plans = [paced(plan, ALONE, seconds)[0] for seconds in (60.0, 120.0, 240.0, 480.0)]
    means = [fmean(edge.accuracy.middle for edge in expected(each).edges if edge.accuracy) for each in plans]
    assert means == sorted(means)
    assert means[-1] > means[0]


def test_a_time_that_is_too_short_names_the_shortest(plan) -> None:
    with pytest.raises(TooShortError) as caught:
        paced(plan, ALONE, 1.0)
    least = caught.value.seconds
    found, _ = paced(plan, ALONE, least + 0.01)
    assert found.recipe.pace == pytest.approx(FASTEST, rel=0.5)
    with pytest.raises(TooShortError):
        paced(plan, ALONE, least - 0.01)


def test_endless_time_is_not_filled(plan) -> None:
    found, _ = paced(plan, ALONE, 1e6)
    assert found.recipe.pace == SLOWEST


def test_an_algorithm_that_leaves_more_time_for_training_is_chosen_for_all(plan) -> None:
    """With equal steps, the other one would be better, but it takes most of the time for something else."""
    slow, fast = (
        AlgorithmProfile(
            loss_per_halving=loss, edge_overhead=overhead,
            adaptation=(0, *[100] * 32), tune_steps=600, max_steps=30_000,
        )
        for loss, overhead in ((0.027, 14_000), (0.036, 0))
    )  # fmt: skip
    estimates = TIMED.model_copy(update={"source_steps": 0, "profiles": {"chamnet": slow, "morphnet": fast}})
    usual = forecast_of(with_goals(plan, estimates, "auto")).plan
    assert {node.algorithm for node in usual.nodes} == {"chamnet"}
    found, _ = paced(plan, estimates, 3000.0)
    assert {node.algorithm for node in found.nodes} == {"morphnet"}
    assert {node.choice for node in found.nodes} == {
        "expected to be best on average after 50 min, with the steps that fit into it"
    }


def test_a_named_algorithm_stays(plan) -> None:
    found, _ = paced(plan, ALONE, 100.0, "morphnet")
    assert {node.algorithm for node in found.nodes} == {"morphnet"}


def test_the_source_is_tuned_less_if_that_is_expected_to_cost_nothing(plan) -> None:
    """This is known from a trial: here, more steps of the source are worth nothing."""
    for known, share in ((False, 1.0), (True, 0.25)):
        found, _ = paced(plan, ALONE, 150.0, known=known)
        assert found.recipe.source_pace == pytest.approx(share * found.recipe.pace)
