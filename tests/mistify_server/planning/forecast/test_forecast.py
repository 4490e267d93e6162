"""Forecasts for a batch and their uncertainty, compared with simulated networks."""

from collections.abc import Sequence

import numpy as np
import pytest

from executors.contract.profile import AlgorithmProfile
from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import Target
from mistify.config.package.branches import BranchesConfig
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.budget import FLOPS, MEMORY, latency_axis
from mistify.costs.quantization import Quantization
from mistify.jobs.job import Goal
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.plan import PlannedBatch
from mistify_server.planning.forecast.course import (
    OVERHEAD_STEPS,
    PACKAGING_SECONDS,
    STARTING_SECONDS,
    STEP_SECONDS,
)
from mistify_server.planning.forecast.forecast import Forecast
from mistify_server.planning.forecast.records import subject_of
from mistify_server.store.edges import EdgeRecord, OutputRecord
from mistify_server.store.plans import BatchPlan
from mistify_server.tasks.estimates import EdgeEstimates, SourceTrial
from tests.mistify_server.planning.forecast.histories import FEATURES, PROFILES, case, seen
from tests.support.targets import overall

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
    forecast = Forecast(asked, estimates, records, trial=trial)
    batch = forecast.planned({"a": goal}, 1)
    check_work(forecast.with_work({"a": goal}), batch)
    return batch


def tuned_by(tune_steps: int, max_steps: int) -> EdgeEstimates:
    """Return estimates for one algorithm that cuts within 100 steps."""
    profile = PROFILES["morphnet"].model_copy(update={"tune_steps": tune_steps, "max_steps": max_steps})
    return PROSPECTS.model_copy(update={"profiles": {"morphnet": profile}})


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

    def counted(profile: AlgorithmProfile, halvings: float, rounds: int = 1) -> int:
        looked_at.append(rounds)
        assert len(looked_at) < 2_000, "too many rounds"
        return within(profile, halvings, rounds)

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
        steps |= {edge.steps for edge in Forecast(asked, estimates, ()).planned({"a": goal}, 1).edges}
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
    work = Forecast(asked, estimates, ()).with_work({"a": goal})
    assert work.source_seconds == pytest.approx((200 + OVERHEAD_STEPS) * 0.1)
    assert work.preparing_seconds == pytest.approx({"morphnet": (300 + OVERHEAD_STEPS) * 0.1})
    check_work(work, Forecast(asked, estimates, ()).planned({"a": goal}, 1))


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
    assert Forecast(grown, PROSPECTS, ()).with_work({}).nodes[0].steps == 7


def test_the_forecast_includes_the_time_to_generate_data(plan: BatchPlan) -> None:
    timed = PROSPECTS.model_copy(update={"step_seconds": 0.01})
    given = planned(plan, timed, ())
    made = planned(plan, timed.model_copy(update={"generating": 300}), ())
    assert made.source_seconds - given.source_seconds == pytest.approx(3)
    assert made.seconds - given.seconds == pytest.approx(3)


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
    forecast = Forecast(asked, estimates, ())
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
    forecast = Forecast(asked, estimates, ())
    batch = forecast.planned(of_plan, 1)
    assert [preparation.steps for preparation in batch.preparations] == [100] * pays
    kept = forecast.with_work(of_plan).estimates
    assert kept is not None
    assert kept.profiles["morphnet"].prepares is pays


def test_shared_training_counts_as_learned(plan: BatchPlan) -> None:
    """It counts like the goals' own steps."""
    shared = many_planned(plan, 40, "nested").edges[-1].accuracy
    alone = many_planned(plan, 40, "morphnet").edges[-1].accuracy
    assert shared is not None
    assert alone is not None
    assert shared.middle == pytest.approx(alone.middle, abs=0.01)


def under_latency(plan: BatchPlan, limit: float) -> PlannedBatch:
    """Return a latency goal on hardware where halving the multiply-adds only reduces latency to 0.9."""
    axis = latency_axis("host")
    scaled = tuple({FLOPS: SOURCE[FLOPS] * 4.0**place, axis: 0.8 ** (1 - place)} for place in range(-9, 2))
    source = {**SOURCE, axis: 0.8}
    node = plan.nodes[0].model_copy(update={"goals": ("a",), "budget": {axis: limit * source[axis]}})
    asked = plan.model_copy(update={"source_costs": source, "nodes": (node,)})
    estimates = PROSPECTS.model_copy(update={"scaled": scaled})
    goal = Goal(id="a", batch=0, spec=PackageSpec(node.budget))
    return Forecast(asked, estimates, []).planned({"a": goal}, 1)


def test_each_output_is_predicted_to_lose_the_same_share_of_its_score(plan: BatchPlan) -> None:
    """With so many test examples that sampling noise is negligible."""
    scores = (OutputScore("kind", Metric.ACCURACY, 0.9), OutputScore("price", Metric.MSE, 2.0))
    estimates = PROSPECTS.model_copy(update={"output_scores": scores, "source_steps": 0})
    batch = planned(plan, estimates, ())
    (edge,) = batch.edges
    assert edge.accuracy is not None
    assert batch.source_accuracy is not None
    lost = 1 - edge.accuracy.middle / batch.source_accuracy.middle
    assert 0 < lost < 0.5
    assert [(one.output, one.metric) for one in edge.outputs] == [
        ("kind", Metric.ACCURACY),
        ("price", Metric.MSE),
    ]
    kind, price = (one.interval.middle for one in edge.outputs)
    assert kind == pytest.approx(0.9 * (1 - lost), rel=0.03)
    assert price == pytest.approx(2.0 / (1 - lost), rel=0.03)
    assert [one.interval.middle for one in batch.source_outputs] == pytest.approx([0.9, 2.0], rel=0.03)


def test_the_forecast_of_an_output_follows_its_own_trial(plan: BatchPlan) -> None:
    """Its own trial score counts, not its distance from a perfect score, and more steps gain more."""
    scores = (OutputScore("kind", Metric.ACCURACY, 0.3),)

    def middle(source_steps: int, trial: float | None) -> float:
        estimates = PROSPECTS.model_copy(update={"output_scores": scores, "source_steps": source_steps})
        tried = () if trial is None else (OutputScore("kind", Metric.ACCURACY, trial),)
        trial = SourceTrial(tested=100_000, sampled=5_000, steps=100, accuracy=0.85, scores=tried)
        (own,) = planned(plan, estimates, (), trial=trial).source_outputs
        return own.interval.middle

    assert middle(100, 0.31) == pytest.approx(0.31, abs=0.02)
    assert middle(100, 0.31) < middle(2_400, 0.31) < 0.4
    assert middle(2_400, 0.6) > 0.7
    assert middle(2_400, None) > 0.6  # the only information is that sources improve


def test_the_forecast_of_an_output_follows_its_earlier_jobs(plan: BatchPlan) -> None:
    scores = (OutputScore("kind", Metric.ACCURACY, 0.33),)
    estimates = PROSPECTS.model_copy(update={"output_scores": scores})
    subject = subject_of(FEATURES, plan.recipe.data)
    kind = OutputRecord(output="kind", metric=Metric.ACCURACY, source=0.35, lost=0.2)
    records = [
        seen(case(1.0, subject=subject), 0.01).model_copy(update={"outputs": (kind,)}) for _ in range(6)
    ]
    batch = planned(plan, estimates, (), records)
    (own,) = batch.source_outputs
    assert own.interval.middle == pytest.approx(0.35, abs=0.03)
    ((reached,),) = (edge.outputs for edge in batch.edges)
    assert reached.interval.middle == pytest.approx(0.35 * 0.8, abs=0.03)
    assert (batch.present_accuracy, batch.present_outputs) == (0.8, scores)


def test_a_network_is_tuned_for_the_target_of_an_output_with_a_warning_if_hopeless(
    plan: BatchPlan,
) -> None:
    scores = (OutputScore("price", Metric.MSE, 2.0),)
    estimates = tuned_by(50, 2_000).model_copy(update={"output_scores": scores})
    steps = []
    for value in (4.0, 1.2, 0.1):
        (edge,) = planned(plan, estimates, (Target("price", Metric.MSE, value),)).edges
        steps.append(edge.steps)
    assert steps[0] < steps[1] <= steps[2] == 2_000
    assert edge.warning.startswith("price: mse 0.1 is likely to be missed: ")


def test_a_latency_limit_is_not_predicted_to_be_met_by_uniform_scaling(plan: BatchPlan) -> None:
    (edge,) = under_latency(plan, 0.5).edges
    assert edge.costs[latency_axis("host")] <= edge.budget[latency_axis("host")]
    assert np.log2(SOURCE[FLOPS] / edge.costs[FLOPS]) == pytest.approx(1.3)  # 6.2 with uniform scaling


def test_an_int8_package_is_predicted_to_lose_more(plan: BatchPlan) -> None:
    def middle(precision: Quantization) -> float:
        node = plan.nodes[0].model_copy(update={"goals": ("a",), "budget": {FLOPS: 0.5 * SOURCE[FLOPS]}})
        asked = plan.model_copy(update={"source_costs": SOURCE, "nodes": (node,)})
        goal = Goal("a", 0, PackageSpec(node.budget, quantization=QuantizationConfig(precision=precision)))
        (edge,) = Forecast(asked, PROSPECTS, []).planned({"a": goal}, 1).edges
        assert edge.accuracy is not None
        return edge.accuracy.middle

    assert middle(Quantization.INT8) < middle(Quantization.NONE)


def test_a_target_is_reported_as_likely_missed_only_above_the_interval(plan: BatchPlan) -> None:
    (free,) = planned(plan, PROSPECTS, overall(0.5)).edges
    assert free.accuracy is not None
    assert free.accuracy.high < 0.999
    assert not planned(plan, PROSPECTS, overall(free.accuracy.high - 0.001)).edges[0].warning
    assert "likely to be missed" in planned(plan, PROSPECTS, overall(0.9999)).edges[0].warning


@pytest.mark.parametrize(
    ("train", "distillation", "unused"),
    [("t", 0, True), ("t", 0.0, True), ("t", 0.5, False), (None, 0, False)],
)
def test_unused_unlabelled_inputs_are_reported(
    plan: BatchPlan, train: str | None, distillation: float, unused: bool
) -> None:
    """They are always used if there is no training data."""
    data = plan.recipe.data.model_copy(update={"unlabelled": "u.npz", "train": train})
    changes = {"data": data, "settings": {"distillation": distillation}}
    recipe = plan.recipe.model_copy(update=changes)
    (edge,) = planned(plan.model_copy(update={"recipe": recipe}), PROSPECTS, ()).edges
    assert ("inputs are unused" in edge.warning) is unused
