"""Forecasts of the scores of a batch, and of the targets that it misses."""

import numpy as np
import pytest

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import Target
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.budget import FLOPS, latency_axis
from mistify.costs.quantization import Quantization
from mistify.jobs.job import Goal
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.plan import PlannedBatch
from mistify_server.planning.forecast.basis import ForecastBasis
from mistify_server.planning.forecast.forecast import Forecast
from mistify_server.planning.forecast.records import subject_of
from mistify_server.store.edges import OutputRecord
from mistify_server.store.plans import BatchPlan
from mistify_server.tasks.estimates import SourceTrial
from tests.mistify_server.planning.forecast.batches import PROSPECTS, SOURCE, many_planned, planned, tuned_by
from tests.mistify_server.planning.forecast.histories import FEATURES, case, seen
from tests.support.targets import overall


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
    return Forecast(asked, ForecastBasis(asked, estimates, [])).planned({"a": goal}, 1)


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
        (edge,) = Forecast(asked, ForecastBasis(asked, PROSPECTS, [])).planned({"a": goal}, 1).edges
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
