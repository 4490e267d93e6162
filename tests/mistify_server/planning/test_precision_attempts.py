"""Attempts to package a goal at several precisions: insufficient ones, the next ones, and the result."""

from dataclasses import replace

import pytest

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import Target
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.jobs.job import Goal
from mistify.jobs.package_spec import PackageSpec
from mistify_server.planning.precision import Attempt, at_other_precision, others, safer
from mistify_server.tasks.results import AdaptResult, PackageResult, TaskFailure
from tests.support.targets import overall

GOAL = Goal(
    "a",
    0,
    PackageSpec(
        {"memory_bytes@int8": 100.0, "flops": 10.0, "latency_ms@host@int8": 3.0},
        quantization=QuantizationConfig(precision=Quantization.INT8),
    ),
    precision_choice="int8, ...",
)


def adapted(accuracy: float = 0.8, **costs: float) -> AdaptResult:
    costs = {"flops": 10.0, "latency_ms@host": 3.0, "latency_ms@host@dynamic": 3.0} | costs
    return AdaptResult(checkpoint="c", costs=costs, accuracy=accuracy, met=True, reason="", steps=1)


def package(accuracy: float, **measured: float) -> PackageResult:
    """Return a package with an accuracy on the validation data; its test accuracy is perfect."""
    return PackageResult(files={}, achieved={}, measured=measured, accuracy=1.0, validation_accuracy=accuracy)


@pytest.mark.parametrize(
    ("accuracy", "target", "metric", "short"),
    [
        (0.79, None, Metric.ACCURACY, False),
        (0.78, None, Metric.ACCURACY, True),
        (0.79, 0.795, Metric.ACCURACY, True),
        (0.79, 0.85, Metric.ACCURACY, False),  # the checkpoint misses it as well
        (0.85, None, Metric.MSE, False),
        (0.9, None, Metric.MSE, True),
        (0.85, 0.82, Metric.MSE, True),
    ],
)
def test_insufficient_packages_are_recognised(
    accuracy: float, target: float | None, metric: Metric, short: bool
) -> None:
    spec = replace(GOAL.spec, targets=overall(target, metric))
    goal = replace(GOAL, spec=spec, metric=metric)
    assert Attempt(goal, adapted(), package(accuracy)).falls_short is short


def test_another_package_replaces_one_if_better_and_within_all_measured_limits() -> None:
    costs = {"memory_bytes@int8": 90.0, "latency_ms@host@int8": 2.0}
    costs |= {"memory_bytes@dynamic": 100.0, "memory_bytes@float16": 101.0, "memory_bytes": 100.0}
    checkpoint = adapted(**costs)
    first = Attempt(GOAL, checkpoint, package(0.7))
    trained, dynamic, none = safer(first)
    assert [goal.spec.quantization.precision.value for goal in (trained, dynamic, none)] == [
        *("int8-qat", "dynamic", "none")
    ]
    failed = Attempt(GOAL, checkpoint, TaskFailure(code="INTERNAL", message="no kernel"))
    better, worse, slow = (
        Attempt(dynamic, checkpoint, package(*figures[:1], **{"latency_ms@host@dynamic": figures[1]}))
        for figures in ((0.75, 2.0), (0.65, 2.0), (0.75, 3.1))
    )
    assert first.improved(better).goal.spec.quantization.precision is Quantization.DYNAMIC
    assert first.improved(worse) is first
    assert first.improved(slow) is first
    assert first.improved(failed) is first
    assert failed.falls_short
    made = failed.improved(worse)
    assert made.result is worse.result
    assert made.goal.precision_choice == "dynamic instead of int8, with which it could not be packaged"


def scored(price: float, accuracy: float = 0.8) -> PackageResult:
    """Return a package with an error of an output on the validation data, and an accuracy."""
    scores = (OutputScore("price", Metric.MSE, price),)
    return package(accuracy).model_copy(update={"validation_output_scores": scores})


def test_the_package_with_an_output_that_reaches_its_target_is_chosen() -> None:
    targets = (*overall(0.7), Target("price", Metric.MSE, 0.05))
    goal = replace(GOAL, spec=replace(GOAL.spec, budget={}, targets=targets))
    checkpoint = adapted().model_copy(update={"output_scores": (OutputScore("price", Metric.MSE, 0.04),)})
    rough, fine = Attempt(goal, checkpoint, scored(0.06)), Attempt(goal, checkpoint, scored(0.04, 0.75))
    assert (rough.meets, rough.falls_short) == (False, True)
    assert (fine.meets, fine.falls_short) == (True, True)
    assert fine.improved(rough) is fine
    better = rough.improved(fine)
    assert better.result is fine.result
    assert better.goal.precision_choice.endswith("with which price: mse 0.0600 above 0.0500")


def missed(goal: Goal, accuracy: float, **costs: float) -> Attempt:
    """Return an attempt with a package of this accuracy and a network with these costs."""
    return Attempt(goal, adapted(accuracy, **costs), package(accuracy))


SOURCE = {"latency_ms@host": 8.0, "latency_ms@host@float16": 8.0, "latency_ms@host@dynamic": 4.0} | {
    "latency_ms@host@int8": 3.2
}
FAST = replace(GOAL, spec=replace(GOAL.spec, budget={"latency_ms@host@int8": 2.0}, targets=overall(0.9)))


def tried(attempt: Attempt, **floor: float) -> list[str]:
    return [goal.spec.quantization.precision.value for goal in others(attempt, SOURCE, floor)]


def test_a_missed_limit_is_tried_at_every_precision_that_can_meet_it() -> None:
    slow = missed(FAST, 0.8, **{"latency_ms@host@int8": 2.1})
    assert tried(slow) == ["dynamic", "none", "float16"]
    assert tried(slow, **{"latency_ms@host@dynamic": 2.5}) == ["none", "float16"]
    (dynamic, *_) = others(slow, SOURCE, {})
    assert dict(dynamic.spec.budget) == {"latency_ms@host@dynamic": 2.0}


def test_a_missed_accuracy_is_tried_at_precisions_that_leave_more_of_the_network() -> None:
    assert tried(missed(FAST, 0.8, **{"latency_ms@host@int8": 1.9})) == []
    dynamic = at_other_precision(FAST, Quantization.DYNAMIC)
    assert tried(missed(dynamic, 0.8, **{"latency_ms@host@dynamic": 1.9})) == ["int8"]


def test_met_goals_and_requested_precisions_are_not_tried_again() -> None:
    met = missed(
        replace(FAST, spec=replace(FAST.spec, targets=overall(0.7))), 0.8, **{"latency_ms@host@int8": 1.9}
    )
    assert met.meets
    assert tried(met) == []
    assert tried(missed(replace(FAST, precision_choice=""), 0.8, **{"latency_ms@host@int8": 2.1})) == []


@pytest.mark.parametrize(
    ("accuracy", "precisions"),
    [
        (0.3, ["dynamic", "none", "float16"]),
        (0.76, ["dynamic"]),  # halving the source loses as much as int8 did; quartering it loses more
        (0.79, []),
    ],
)
def test_the_loss_of_a_precision_is_compared_with_that_of_smaller_networks_at_others(
    accuracy: float, precisions: list[str]
) -> None:
    """The limit leaves 63% of the source in int8, half in dynamic, and a quarter in float32."""
    goal = replace(FAST, spec=replace(FAST.spec, targets=()))
    attempt = Attempt(goal, adapted(0.8, **{"latency_ms@host@int8": 1.9}), package(accuracy))
    assert attempt.meets
    assert tried(attempt) == precisions


def test_a_loss_is_relative_to_the_greater_value() -> None:
    assert Attempt(GOAL, adapted(0.8), package(0.2)).lost == pytest.approx(0.75)
    assert Attempt(replace(GOAL, metric=Metric.MSE), adapted(0.2), package(0.8)).lost == pytest.approx(0.75)
    assert Attempt(GOAL, adapted(0.0), package(0.0)).lost == 0.0


def test_a_package_within_the_limits_replaces_a_more_accurate_one_beyond_them() -> None:
    slow = missed(FAST, 0.8, **{"latency_ms@host@int8": 2.1})
    fast = missed(at_other_precision(FAST, Quantization.DYNAMIC), 0.6, **{"latency_ms@host@dynamic": 1.9})
    better = slow.improved(fast)
    assert better.goal.precision_choice == (
        "dynamic instead of int8, with which it has latency on host in int8 2.1ms over 2ms"
    )
    assert fast.improved(slow) is fast
    noted = better.after_trying([Quantization.DYNAMIC, Quantization.NONE])
    assert noted.goal.precision_choice.endswith("; the goal was missed with float32 as well")
