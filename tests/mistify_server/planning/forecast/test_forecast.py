"""What is expected of a batch, and how uncertain: as often as many networks that lose at random tell."""

from collections.abc import Sequence

import numpy as np
import pytest

from mistify.config.metric import Metric, OutputScore
from mistify.config.targets import Target
from mistify.costs.budget import FLOPS
from mistify.jobs.job import Goal
from mistify.jobs.plan import Estimate, PlannedBatch
from mistify_server.planning.forecast.forecast import Forecast, after_losing
from mistify_server.planning.forecast.records import subject_of
from mistify_server.store.edges import EdgeRecord
from mistify_server.store.plans import BatchPlan
from mistify_server.tasks.estimates import Candidate, EdgeEstimates
from tests.mistify_server.planning.forecast.experiences import CANDIDATES, TRAITS, case, seen
from tests.targets import overall

SOURCE = {FLOPS: 10_000.0}
PROSPECTS = EdgeEstimates(
    traits=TRAITS,
    source_steps=200,
    candidates=CANDIDATES,
    scaled=tuple({FLOPS: SOURCE[FLOPS] * 4.0**place} for place in range(-4, 2)),
    accuracy=0.8,
)


def planned(
    plan: BatchPlan, estimates: EdgeEstimates, targets: tuple[Target, ...], records: Sequence[EdgeRecord] = ()
) -> PlannedBatch:
    """A batch of one goal at half of the source's costs."""
    budget = {FLOPS: 0.5 * SOURCE[FLOPS]}
    node = plan.nodes[0].model_copy(update={"goals": ("a",), "budget": budget, "targets": targets})
    asked = plan.model_copy(update={"source_costs": SOURCE, "estimates": estimates, "nodes": (node,)})
    goal = Goal(id="a", batch=0, budget=budget, targets=targets)
    return Forecast(asked, estimates, records).planned({"a": goal}, 1)


def tuned_by(tune_steps: int, max_steps: int) -> EdgeEstimates:
    """EdgeEstimates of one algorithm, that cuts in 100 steps."""
    candidate = CANDIDATES["morphnet"].model_copy(update={"tune_steps": tune_steps, "max_steps": max_steps})
    return PROSPECTS.model_copy(update={"candidates": {"morphnet": candidate}})


@pytest.mark.parametrize(
    ("candidate", "rounds"),
    [(CANDIDATES["morphnet"], 5), (CANDIDATES["morphnet"].model_copy(update={"tune_steps": 0}), 1)],
)
def test_a_network_is_tuned_until_it_has_its_most_steps(candidate: Candidate, rounds: int) -> None:
    assert candidate.rounds(1.0) == rounds
    steps = [candidate.steps(1.0, number) for number in range(1, rounds + 2)]
    assert steps == sorted(steps)
    assert steps[-2] == steps[-1] or not candidate.tune_steps


def test_a_goal_of_millions_of_rounds_is_foreseen_at_once(
    plan: BatchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly as where all rounds are looked at."""
    looked_at: list[int] = []
    within = Candidate.steps

    def counted(candidate: Candidate, distance: float, rounds: int = 1) -> int:
        looked_at.append(rounds)
        assert len(looked_at) < 2_000, "too many rounds"
        return within(candidate, distance, rounds)

    monkeypatch.setattr(Candidate, "steps", counted)
    (missed,) = planned(plan, tuned_by(1, 10_000_000), overall(0.99)).edges
    assert missed.steps == 10_000_000
    assert "after 10,000,000 steps" in missed.warning
    targets = [0.794, 0.798, 0.8, 0.805]
    far = [planned(plan, tuned_by(10, 10_000_000), overall(target)).edges[0].steps for target in targets]
    near = [planned(plan, tuned_by(10, 3_000), overall(target)).edges[0].steps for target in targets]
    assert far == sorted(far)
    for one, other in zip(far, near, strict=True):
        assert other == 3_000 or one == pytest.approx(other, rel=0.25)


def test_what_a_step_takes_now_counts_more_than_what_it_took_before(plan: BatchPlan) -> None:
    """Other jobs with the model may have had larger batches, or a busier machine."""
    subject = subject_of(TRAITS, plan.data)
    records = [seen(case(0.0, subject=subject), 0.0, seconds=85.0)]  # 850 steps of 0.1 s
    timed = PROSPECTS.model_copy(update={"step_seconds": 0.01})
    before = planned(plan, PROSPECTS, (), records).edges[0]
    now = planned(plan, timed, (), records).edges[0]
    assert before.seconds - 1 == pytest.approx(10 * (now.seconds - 1))
    assert now.seconds == pytest.approx(planned(plan, timed, ()).edges[0].seconds)


def test_data_that_are_to_be_generated_take_their_time(plan: BatchPlan) -> None:
    timed = PROSPECTS.model_copy(update={"step_seconds": 0.01})
    given = planned(plan, timed, ())
    made = planned(plan, timed.model_copy(update={"generating": 300}), ())
    assert made.source_seconds - given.source_seconds == pytest.approx(3)
    assert made.seconds - given.seconds == pytest.approx(3)


def test_each_output_is_expected_to_lose_the_same_share_of_its_score(plan: BatchPlan) -> None:
    scores = (OutputScore("kind", Metric.ACCURACY, 0.9), OutputScore("price", Metric.MSE, 2.0))
    estimates = PROSPECTS.model_copy(update={"output_scores": scores, "source_steps": 0})
    batch = planned(plan, estimates, ())
    (edge,) = batch.edges
    assert edge.accuracy is not None
    assert batch.source_accuracy is not None
    lost = 1 - edge.accuracy.mean / batch.source_accuracy.mean
    assert 0 < lost < 0.5
    assert [(one.output, one.metric, one.estimate.mean) for one in edge.outputs] == [
        ("kind", Metric.ACCURACY, pytest.approx(0.9 * (1 - lost))),
        ("price", Metric.MSE, pytest.approx(2.0 / (1 - lost))),
    ]
    assert [one.estimate.mean for one in batch.source_outputs] == [0.9, 2.0]


def test_a_network_is_tuned_for_the_target_of_an_output_and_a_hopeless_one_is_announced(
    plan: BatchPlan,
) -> None:
    scores = (OutputScore("price", Metric.MSE, 2.0),)
    estimates = tuned_by(50, 2_000).model_copy(update={"output_scores": scores})
    steps = []
    for value in (3.0, 1.75, 1.0):
        (edge,) = planned(plan, estimates, (Target("price", Metric.MSE, value),)).edges
        steps.append(edge.steps)
    assert steps[0] < steps[1] < steps[2] == 2_000
    assert edge.warning.startswith("price: mse 1 is likely to be missed: ")


@pytest.mark.parametrize("metric", [Metric.ACCURACY, Metric.MSE])
@pytest.mark.parametrize(
    ("source", "lost"),
    [
        (Estimate(0.6, 0.02), Estimate(0.5, 0.01)),
        (Estimate(0.6, 0.002), Estimate(0.5, 0.02)),
        (Estimate(0.4, 0.01), Estimate(-0.25, 0.03)),
    ],
)
def test_the_margin_is_that_of_networks_that_lose_at_random(
    metric: Metric, source: Estimate, lost: Estimate
) -> None:
    random = np.random.default_rng(0)
    drawn = zip(
        random.normal(source.mean, source.deviation, 20_000),
        random.normal(lost.mean, lost.deviation, 20_000),
        strict=True,
    )
    reached = [metric.after(figure, share) for figure, share in drawn]
    expected = after_losing(metric, source, lost)
    assert expected.mean == pytest.approx(np.mean(reached), rel=0.01)
    assert expected.deviation == pytest.approx(np.std(reached), rel=0.03)


def test_an_error_of_which_nothing_is_kept_has_a_margin() -> None:
    expected = after_losing(Metric.MSE, Estimate(0.1, 0.01), Estimate(1.5, 0.1))
    assert 0 < expected.mean < expected.deviation < float("inf")
