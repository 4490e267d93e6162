"""Forecasts of the steps and the time of a batch."""

import pytest

from executors.contract.profile import AlgorithmProfile
from mistify.config.package.branches import BranchesConfig
from mistify.config.task import TaskConfig
from mistify.costs.budget import FLOPS, MEMORY
from mistify.jobs.job import Goal
from mistify.jobs.package_spec import PackageSpec
from mistify_server.planning.forecast.basis import ForecastBasis
from mistify_server.planning.forecast.batch_time import (
    OVERHEAD_STEPS,
    PACKAGING_SECONDS,
    STARTING_SECONDS,
    STEP_SECONDS,
)
from mistify_server.planning.forecast.forecast import Forecast
from mistify_server.planning.forecast.records import subject_of
from mistify_server.store.plans import BatchPlan
from tests.mistify_server.planning.forecast.batches import (
    PROSPECTS,
    SOURCE,
    check_work,
    many_planned,
    planned,
    tuned_by,
)
from tests.mistify_server.planning.forecast.histories import FEATURES, PROFILES, case, seen
from tests.support.targets import overall

TASK = TaskConfig(classes=("cat", "dog"))


@pytest.mark.parametrize(
    ("profile", "rounds"),
    [(PROFILES["morphnet"], 5), (PROFILES["morphnet"].model_copy(update={"tune_steps": 0}), 1)],
)
def test_a_network_is_tuned_up_to_its_step_limit(profile: AlgorithmProfile, rounds: int) -> None:
    assert profile.rounds(1.0) == rounds
    steps = [profile.steps(1.0, number) for number in range(1, rounds + 2)]
    assert steps == sorted(steps)
    assert steps[-2] == steps[-1] or not profile.tune_steps


def test_a_goal_with_millions_of_rounds_is_predicted_immediately(
    plan: BatchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is close to that of evaluating all rounds."""
    looked_at: list[int] = []
    within = AlgorithmProfile.steps

    def counted(profile: AlgorithmProfile, halvings: float, rounds: int = 1, spared: int = 0) -> int:
        looked_at.append(rounds)
        assert len(looked_at) < 2_000, "too many rounds"
        return within(profile, halvings, rounds, spared)

    monkeypatch.setattr(AlgorithmProfile, "steps", counted)
    (missed,) = planned(plan, tuned_by(1, 10_000_000), overall(0.99)).edges
    assert missed.steps == 10_000_000
    assert "after 10,000,000 steps" in missed.warning
    targets = [0.794, 0.798, 0.8, 0.805]
    far = [planned(plan, tuned_by(10, 10_000_000), overall(target)).edges[0].steps for target in targets]
    near = [planned(plan, tuned_by(10, 3_000), overall(target)).edges[0].steps for target in targets]
    assert far == sorted(far)
    for one, other in zip(far, near, strict=True):
        assert other == 3_000 or one == pytest.approx(other, rel=0.25)


def test_a_network_larger_than_the_source_may_take_all_its_steps(plan: BatchPlan) -> None:
    (above,) = planned(plan, tuned_by(600, 3000), (), share=2.0).edges
    (below,) = planned(plan, tuned_by(600, 3000), (), share=0.9).edges
    assert (above.steps, below.steps) == (3000, 700)


@pytest.mark.parametrize(
    ("source_steps", "task", "steps"), [(599, None, 600), (600, None, 0), (600, TASK, 600)]
)
def test_an_uncut_network_takes_no_steps_if_its_source_learns_the_same_for_as_long(
    plan: BatchPlan, source_steps: int, task: TaskConfig | None, steps: int
) -> None:
    node = plan.nodes[0].model_copy(update={"task": task})
    asked = plan.model_copy(update={"nodes": (node,)})
    estimates = tuned_by(600, 3000).model_copy(update={"source_steps": source_steps})
    (edge,) = planned(asked, estimates, (), share=1.0).edges
    assert edge.steps == steps


def test_a_network_as_large_as_the_source_is_tuned_once(plan: BatchPlan) -> None:
    """Its costs are interpolated, with rounding errors."""
    scaled = tuple({FLOPS: 7e3 * 3.0**place, MEMORY: 1e3 * 2.0**place} for place in range(-4, 3))
    estimates = tuned_by(600, 3000).model_copy(update={"scaled": scaled})
    budget = {MEMORY: 4e3}
    node = plan.nodes[0].model_copy(update={"goals": ("a",), "budget": budget, "targets": ()})
    goal = Goal(id="a", batch=0, spec=PackageSpec(budget))
    steps = set()
    for flops in range(8_000, 16_000, 250):
        source = {FLOPS: float(flops), MEMORY: 2e3}
        asked = plan.model_copy(update={"source_costs": source, "estimates": estimates, "nodes": (node,)})
        steps |= {
            edge.steps
            for edge in Forecast(asked, ForecastBasis(asked, estimates, ())).planned({"a": goal}, 1).edges
        }
    assert steps == {600}


def test_a_step_that_nobody_has_timed_takes_a_usual_time(plan: BatchPlan) -> None:
    untimed, timed = (
        planned(plan, PROSPECTS.model_copy(update={"step_seconds": seconds}), ())
        for seconds in (None, STEP_SECONDS)
    )
    assert untimed.seconds == timed.seconds > STARTING_SECONDS + 1


def test_the_work_includes_loading_and_evaluating_networks(plan: BatchPlan) -> None:
    node = plan.nodes[0].model_copy(update={"goals": ("a",), "budget": {FLOPS: 5_000.0}, "targets": ()})
    goal = Goal(id="a", batch=0, spec=PackageSpec(node.budget))
    profile = PROFILES["morphnet"].model_copy(update={"preparation": (300,) * 33})
    update = {"profiles": {"morphnet": profile}, "step_seconds": 0.1}
    estimates = PROSPECTS.model_copy(update=update)
    asked = plan.model_copy(update={"source_costs": SOURCE, "estimates": estimates, "nodes": (node,)})
    work = Forecast(asked, ForecastBasis(asked, estimates, ())).with_work({"a": goal})
    assert work.source_seconds == pytest.approx((200 + OVERHEAD_STEPS) * 0.1)
    assert work.preparing_seconds == pytest.approx({"morphnet": (300 + OVERHEAD_STEPS) * 0.1})
    check_work(work, Forecast(asked, ForecastBasis(asked, estimates, ())).planned({"a": goal}, 1))


def test_a_goal_with_larger_branches_is_adapted_again_as_one_of_them(plan: BatchPlan) -> None:
    estimates = tuned_by(600, 3000).model_copy(update={"step_seconds": 0.01})
    seconds = [
        planned(plan, estimates, (), branches=branches).edges[0].seconds
        for branches in (
            None,
            BranchesConfig.model_validate({"count": 3, "from": "0.5x", "to": "1x"}),
            BranchesConfig.model_validate({"count": 3, "from": "0.5x", "to": "2x"}),
        )
    ]
    alone = (seconds[2] - seconds[1], (seconds[1] - seconds[0]) / 2 - PACKAGING_SECONDS)
    assert alone[0] == pytest.approx(alone[1])
    assert alone[0] > 0


def test_the_current_step_time_counts_more_than_earlier_ones(plan: BatchPlan) -> None:
    """Earlier jobs with the model may have had larger batches or a busier machine."""
    subject = subject_of(FEATURES, plan.recipe.data)
    records = [seen(case(0.0, subject=subject), 0.0, seconds=85.0)]  # 850 steps of 0.1 s
    timed = PROSPECTS.model_copy(update={"step_seconds": 0.01})
    before = planned(plan, PROSPECTS, (), records).edges[0]
    now = planned(plan, timed, (), records).edges[0]
    assert before.seconds - 1 == pytest.approx(10 * (now.seconds - 1))
    assert now.seconds == pytest.approx(planned(plan, timed, ()).edges[0].seconds)


def test_the_work_on_nodes_without_new_goals_is_kept(plan: BatchPlan) -> None:
    node = plan.nodes[0].model_copy(update={"steps": 7, "seconds": 5.0})
    grown = plan.model_copy(update={"source_costs": SOURCE, "estimates": PROSPECTS, "nodes": (node,)})
    assert Forecast(grown, ForecastBasis(grown, PROSPECTS, ())).with_work({}).nodes[0].steps == 7


def test_the_forecast_includes_the_time_to_generate_data(plan: BatchPlan) -> None:
    timed = PROSPECTS.model_copy(update={"step_seconds": 0.01})
    given = planned(plan, timed, ())
    made = planned(plan, timed.model_copy(update={"generating": 300}), ())
    assert made.source_seconds - given.source_seconds == pytest.approx(3)
    assert made.seconds - given.seconds == pytest.approx(3)


def test_shared_training_takes_time_once_and_goals_take_no_steps(plan: BatchPlan) -> None:
    many = many_planned(plan, 40)
    assert {edge.algorithm for edge in many.edges} == {"nested"}
    assert {edge.steps for edge in many.edges} == {0}
    (preparation,) = many.preparations
    assert (preparation.algorithm, preparation.steps) == ("nested", 1_200)
    assert preparation.seconds == pytest.approx((OVERHEAD_STEPS + 1_200 * 1.5) * 0.01)
    of_edges = 40 * (50 * 0.01 + 1.0)
    assert many.seconds == pytest.approx(many.source_seconds + preparation.seconds + of_edges)
    few = many_planned(plan, 8)
    assert {edge.algorithm for edge in few.edges} == {"morphnet"}
    assert few.preparations == ()


@pytest.mark.parametrize(("goals", "tune_steps", "pays"), [(1, 600, True), (1, 200, False), (2, 200, True)])
def test_a_preparation_that_edges_can_do_without_has_to_pay_off(
    plan: BatchPlan, goals: int, tune_steps: int, pays: bool
) -> None:
    """It takes 100 steps, and each goal 100 steps until it meets its limits."""
    optional = {"preparation": (100,) * 33, "preparation_pays_from": 4.0, "tune_steps": tune_steps}
    profile = PROFILES["morphnet"].model_copy(update=optional)
    estimates = PROSPECTS.model_copy(update={"profiles": {"morphnet": profile}, "step_seconds": 0.01})
    nodes = tuple(
        plan.nodes[0].model_copy(
            update={
                "index": number,
                "parent": None,
                "goals": (str(number),),
                "budget": {FLOPS: SOURCE[FLOPS] / (2 + number)},
                "targets": (),
                "algorithm": "morphnet",
            }
        )
        for number in range(goals)
    )
    asked = plan.model_copy(update={"source_costs": SOURCE, "estimates": estimates, "nodes": nodes})
    of_plan = {str(node.index): Goal(str(node.index), 0, PackageSpec(node.budget)) for node in nodes}
    forecast = Forecast(asked, ForecastBasis(asked, estimates, ()))
    batch = forecast.planned(of_plan, 1)
    assert [preparation.steps for preparation in batch.preparations] == [100] * pays
    kept = forecast.with_work(of_plan).estimates
    assert kept is not None
    assert kept.profiles["morphnet"].prepares is pays


def test_a_source_that_makes_no_mistake_is_not_expected_to_be_tuned(plan: BatchPlan) -> None:
    perfect, good = (
        planned(plan, PROSPECTS.model_copy(update={"accuracy": accuracy, "step_seconds": 0.1}), ())
        for accuracy in (1.0, 0.9)
    )
    assert good.source_seconds - perfect.source_seconds == pytest.approx(200 * 0.1)
