"""The precision of goals that leave it to the server."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.config.metric import Metric, OutputScore
from mistify.config.porting import PortingConfig
from mistify.config.quantization import QuantizationConfig
from mistify.config.reading import goal_budget, parse_batch
from mistify.config.targets import Target
from mistify.costs.quantization import STORED, Quantization
from mistify.jobs.job import Goal, GoalState
from mistify_server.planning.limits import below_least
from mistify_server.planning.precision import (
    KNOWN_LOSS,
    Attempt,
    at_other_precision,
    choose_precision,
    others,
    safer,
)
from mistify_server.tasks.estimates import EdgeEstimates, Traits
from mistify_server.tasks.results import AdaptResult, Inspection, PackageResult, TaskFailure
from tests.targets import overall

COSTS = {
    "flops": 1e6,
    "params": 1e3,
    "latency_ms@host": 2.0,
    "latency_ms@host@float16": 2.0,
    "latency_ms@host@dynamic": 1.0,
    "latency_ms@host@int8": 0.64,
    "memory_bytes": 10_000.0,
    "memory_bytes@float16": 6_000.0,
    "memory_bytes@dynamic": 5_000.0,
    "memory_bytes@int8": 2_500.0,
    "size_bytes": 8_000.0,
    "size_bytes@float16": 4_500.0,
    "size_bytes@dynamic": 3_000.0,
    "size_bytes@int8": 3_200.0,
}


def config(
    quantization: object = "auto", settings: dict[str, Any] | None = None, **goal: object
) -> PortingConfig:
    given = {"id": "a", "model": "m", "dataset": {"train": "a", "test": "b"}, "adaptation_goal": goal}
    (parsed,) = parse_batch(json.dumps({**given, "quantization": quantization, **(settings or {})}))
    return parsed


def inspected(**floor: float) -> Inspection:
    return Inspection(costs=COSTS, floor=floor)


def chosen(asked: PortingConfig, inspection: Inspection | None = None) -> tuple[str, str]:
    actual, why = choose_precision(asked, inspection or inspected())
    return actual.quantization.precision.value, why


@pytest.mark.parametrize(
    ("goal", "precision"),
    [
        ({"FLOP": "0.1x"}, "none"),
        ({"num_of_params": "0.1x", "latency": "0.5ms"}, "none"),
        ({"memory": "1.2x"}, "none"),
        ({"memory": "0.8x"}, "float16"),
        ({"memory": "0.5x"}, "dynamic"),
        ({"memory": "0.3x"}, "int8"),
        ({"size": "0.3x"}, "dynamic"),  # leaves less of the network in int8, and costs less accuracy
        ({"memory": "0.4x", "FLOP": "0.1x"}, "none"),  # multiply-adds bind, whatever the precision
        ({"memory": "0.02x", "FLOP": "0.1x"}, "int8"),
    ],
)
def test_limits_decide(goal: dict[str, object], precision: str) -> None:
    assert chosen(config(**goal))[0] == precision
    assert chosen(config({"precision": "auto"}, **goal))[0] == precision


@pytest.mark.parametrize(
    ("goal", "precision"),
    [
        ({"latency": "1.2x"}, "none"),
        ({"latency": "0.5x"}, "dynamic"),
        ({"latency": "0.7ms"}, "int8"),
        ({"latency": "0.1x"}, "int8"),
        ({"latency": "0.5x", "FLOP": "0.05x"}, "none"),
    ],
)
def test_latencies_that_were_measured_decide(goal: dict[str, object], precision: str) -> None:
    inspection = Inspection(costs=COSTS, floor={})
    assert chosen(config(**goal), inspection)[0] == precision


def test_a_latency_that_no_network_reaches_at_one_precision_is_left_to_another() -> None:
    floor = {f"latency_ms@{name}": 0.4 for name in ("host", "host@float16", "host@dynamic")}
    floor["latency_ms@host@int8"] = 0.2
    inspection = Inspection(costs=COSTS, floor=floor)
    asked = config(latency="0.3ms")
    at_int8, why = choose_precision(asked, inspection)
    assert (at_int8.quantization.precision, below_least(at_int8, inspection)) == (Quantization.INT8, {})
    assert why == "int8, the only precision at which the goal can be met"
    assert below_least(config("none", latency="0.3ms"), inspection) == {"latency_ms@host": 0.3}


@pytest.mark.parametrize(("limit", "precision"), [("0.5x", "dynamic"), ("0.25x", "none")])
def test_latencies_of_narrow_networks_count(limit: str, precision: str) -> None:
    """Halved widths take a quarter of the time in float32, and no less than before in `dynamic`."""
    whole = {**COSTS, "latency_ms@host@int8": 3.0}
    narrow = {axis: cost / 4 for axis, cost in whole.items() if not axis.startswith("latency")}
    narrow |= {"latency_ms@host": 0.5, "latency_ms@host@float16": 0.5}
    narrow |= {"latency_ms@host@dynamic": 0.9, "latency_ms@host@int8": 3.0}
    least = {axis: cost / 2 for axis, cost in narrow.items()}
    estimates = EdgeEstimates(
        traits=Traits(model="m", kind="convolutional", blocks=0),
        source_steps=0,
        candidates={},
        scaled=(least, narrow, whole),
    )
    inspection = Inspection(costs=whole, floor=least, estimates=estimates)
    assert chosen(config(latency=limit), inspection)[0] == precision


@pytest.mark.parametrize(
    ("settings", "goal", "precision"),
    [
        ({}, {"memory": "0.3x"}, "int8"),
        ({}, {"size": "0.3x"}, "dynamic"),
        ({}, {"latency": "0.3x"}, "int8"),
        ({}, {"FLOP": "0.1x"}, "none"),
        ({"quantization": "none"}, {"memory": "0.3x"}, "none"),
        ({"tuning": {"trainable": "head"}}, {"memory": "0.3x"}, "none"),
    ],
)
def test_by_default_the_precision_is_chosen_where_limits_depend_on_it(
    settings: dict[str, Any], goal: dict[str, object], precision: str
) -> None:
    fields = {"id": "a", "model": "m", "dataset": {"train": "a", "test": "b"}, "adaptation_goal": goal}
    (parsed,) = parse_batch(json.dumps({**fields, **settings}))
    inspection = Inspection(costs=COSTS, floor={})
    assert chosen(parsed, inspection)[0] == precision


def test_a_precision_that_is_asked_for_stays() -> None:
    assert chosen(config("float16", memory="0.1x")) == ("float16", "")


def test_the_choice_is_explained() -> None:
    assert chosen(config(memory="0.2x")) == (
        "int8",
        "int8, at which the limits leave 80% of the source, against 40% as dynamic, 33% as float16, "
        "20% as float32",
    )
    assert chosen(config(FLOP="0.25x")) == (
        "none",
        "float32, at which the limits leave 25% of the source, against 25% as float16, 25% as dynamic, "
        "25% as int8",
    )


def test_a_precision_at_which_no_network_fits_is_not_chosen() -> None:
    floor = {"memory_bytes": 4_000.0, "memory_bytes@float16": 2_000.0, "memory_bytes@dynamic": 1_500.0}
    floor |= {"memory_bytes@int8": 1_400.0}
    assert chosen(config(memory=1_450), inspected(**floor))[0] == "int8"
    small = {**floor, "memory_bytes@int8": 1_460.0, "memory_bytes@dynamic": 1_440.0}
    assert chosen(config(memory=1_450), inspected(**small)) == (
        "dynamic",
        "dynamic, the only precision at which the goal can be met",
    )
    assert chosen(config(memory=100), inspected(**floor))[0] == "int8"


@pytest.mark.parametrize(
    ("settings", "precision"),
    [
        ({"tuning": {"trainable": "head"}}, "none"),
        ({"compression": {"clusters": 16}}, "dynamic"),
        ({"compression": {"sparsity": 0.5}}, "int8"),
        ({"branches": {"count": 3}}, "int8"),
    ],
)
def test_a_precision_has_to_go_with_the_rest(settings: dict[str, Any], precision: str) -> None:
    assert chosen(config(settings=settings, memory="0.1x"))[0] == precision


@given(st.floats(0.01, 2), st.floats(0.01, 2), st.floats(0.01, 2))
def test_no_accuracy_is_paid_for_nothing(memory: float, size: float, flop: float) -> None:
    """No safer precision leaves as much of the network as the one that is chosen."""
    asked = config(memory=f"{memory}x", size=f"{size}x", FLOP=f"{flop}x")
    actual = Quantization(chosen(asked)[0])

    def left(precision: Quantization) -> float:
        at = config(precision.value, memory=f"{memory}x", size=f"{size}x", FLOP=f"{flop}x")
        return min(1.0, *(limit / COSTS[axis] for axis, limit in goal_budget(at, COSTS).items()))

    assert all(left(other) < left(actual) for other in STORED if KNOWN_LOSS[other] < KNOWN_LOSS[actual])


Config = Callable[..., dict[str, object]]


@pytest.fixture
async def tight(caller: Any, site: Any, make_config: Config) -> Callable[..., Any]:
    """A job of a goal that is adapted at int8, where packages lose five points; it has ended."""
    costs = {axis: cost for axis, cost in COSTS.items() if not axis.startswith("latency")}
    site.write("model.json", {"costs": costs, "floor": {axis: cost / 1000 for axis, cost in costs.items()}})

    async def ported(adapted: dict[str, float], **more: object) -> Goal:
        (site.control / "adapted").write_text(
            json.dumps({f"memory_bytes@{p}": c for p, c in adapted.items()})
        )
        job = await caller.submit([{**make_config("a", memory=2_400), "quantization": "auto", **more}])
        assert job.goals[0].quantization.precision is Quantization.INT8
        assert dict(job.goals[0].budget) == {"memory_bytes@int8": 2_400}
        assert job.goals[0].precision_choice.startswith("int8, at which the limits leave 96%")
        return (await caller.finished(job.id)).goals[0]

    return ported


def packaged_as(site: Any) -> list[str]:
    return [task["settings"]["quantization"]["precision"] for task in site.tasks("package")]


async def test_a_package_that_falls_short_is_made_at_the_next_safer_precision(site: Any, tight: Any) -> None:
    goal = await tight({"dynamic": 2_401.0, "float16": 2_399.0})
    assert packaged_as(site) == ["int8", "int8-qat", "float16"]
    assert site.tasks("package")[1]["settings"]["budget"] == {"memory_bytes@int8": 2_400}
    assert site.tasks("package")[2]["settings"]["budget"] == {"memory_bytes@float16": 2_400}
    assert goal.state is GoalState.MET
    assert goal.quantization.precision is Quantization.FLOAT16
    assert dict(goal.budget) == {"memory_bytes@float16": 2_400}
    assert goal.accuracy == pytest.approx(0.8)
    expected = "float16, in place of int8, as which accuracy was 75.0% where the checkpoint has 80.0%"
    assert goal.precision_choice == expected


async def test_without_a_safer_precision_within_the_limits_the_package_stays(site: Any, tight: Any) -> None:
    goal = await tight({"dynamic": 2_401.0, "float16": 2_401.0})
    assert packaged_as(site) == ["int8", "int8-qat", "dynamic", "float16"]
    assert (goal.state, goal.quantization.precision) == (GoalState.MET, Quantization.INT8)


async def test_a_precision_that_was_asked_for_is_never_replaced(
    caller: Any, site: Any, make_config: Config, tight: Any
) -> None:
    await tight({"dynamic": 1.0})
    job = await caller.submit([{**make_config("a", FLOP="0.5x"), "quantization": "int8"}])
    (goal,) = (await caller.finished(job.id)).goals
    assert packaged_as(site) == ["int8", "int8-qat", "dynamic", "int8"]
    assert goal.quantization.precision is Quantization.INT8
    assert goal.precision_choice == ""


async def test_goals_that_are_added_leave_it_to_the_server_too(
    caller: Any, site: Any, make_config: Config, tight: Any
) -> None:
    await tight({})
    job = await caller.submit([make_config("half", FLOP="0.5x")])
    await caller.finished(job.id)
    later = {"quantization": "auto"}
    await caller.add(
        job.id, [{**make_config("b", memory=2_400), **later}, {**make_config("c", FLOP="0.4x"), **later}]
    )
    _, b, c = (await caller.finished(job.id)).goals
    assert (b.quantization.precision, c.quantization.precision) == (Quantization.DYNAMIC, Quantization.NONE)
    assert b.precision_choice.startswith("dynamic, in place of int8")


GOAL = Goal(
    "a",
    0,
    {"memory_bytes@int8": 100.0, "flops": 10.0, "latency_ms@host@int8": 3.0},
    quantization=QuantizationConfig(precision=Quantization.INT8),
    precision_choice="int8, ...",
)


def adapted(accuracy: float = 0.8, **costs: float) -> AdaptResult:
    costs = {"flops": 10.0, "latency_ms@host": 3.0, "latency_ms@host@dynamic": 3.0} | costs
    return AdaptResult(checkpoint="c", costs=costs, accuracy=accuracy, met=True, reason="", steps=1)


def package(accuracy: float, **measured: float) -> PackageResult:
    """Return a package by its accuracy on the validation data; on test data it is perfect."""
    return PackageResult(files={}, achieved={}, measured=measured, accuracy=1.0, validation_accuracy=accuracy)


@pytest.mark.parametrize(
    ("accuracy", "target", "metric", "short"),
    [
        (0.79, None, Metric.ACCURACY, False),
        (0.78, None, Metric.ACCURACY, True),
        (0.79, 0.795, Metric.ACCURACY, True),
        (0.79, 0.85, Metric.ACCURACY, False),  # which the checkpoint misses as well
        (0.85, None, Metric.MSE, False),
        (0.9, None, Metric.MSE, True),
        (0.85, 0.82, Metric.MSE, True),
    ],
)
def test_what_falls_short(accuracy: float, target: float | None, metric: Metric, short: bool) -> None:
    goal = replace(GOAL, targets=overall(target, metric), metric=metric)
    assert Attempt(goal, adapted(), package(accuracy)).falls_short is short


def test_another_package_counts_if_it_is_better_and_within_all_limits_as_measured() -> None:
    costs = {"memory_bytes@int8": 90.0, "latency_ms@host@int8": 2.0}
    costs |= {"memory_bytes@dynamic": 100.0, "memory_bytes@float16": 101.0, "memory_bytes": 100.0}
    checkpoint = adapted(**costs)
    first = Attempt(GOAL, checkpoint, package(0.7))
    trained, dynamic, none = safer(first)
    assert [goal.quantization.precision.value for goal in (trained, dynamic, none)] == [
        *("int8-qat", "dynamic", "none")
    ]
    failed = Attempt(GOAL, checkpoint, TaskFailure(code="INTERNAL", message="no kernel"))
    better, worse, slow = (
        Attempt(dynamic, checkpoint, package(*figures[:1], **{"latency_ms@host@dynamic": figures[1]}))
        for figures in ((0.75, 2.0), (0.65, 2.0), (0.75, 3.1))
    )
    assert first.improved(better).goal.quantization.precision is Quantization.DYNAMIC
    assert first.improved(worse) is first
    assert first.improved(slow) is first
    assert first.improved(failed) is first
    assert failed.falls_short
    made = failed.improved(worse)
    assert made.result is worse.result
    assert made.goal.precision_choice == "dynamic, in place of int8, as which it could not be packaged"


def scored(price: float, accuracy: float = 0.8) -> PackageResult:
    """Return a package by the error of an output on the validation data, and its accuracy."""
    scores = (OutputScore("price", Metric.MSE, price),)
    return package(accuracy).model_copy(update={"validation_output_scores": scores})


def test_a_package_is_chosen_for_the_output_that_reaches_its_target() -> None:
    goal = replace(GOAL, budget={}, targets=(*overall(0.7), Target("price", Metric.MSE, 0.05)))
    checkpoint = adapted().model_copy(update={"output_scores": (OutputScore("price", Metric.MSE, 0.04),)})
    rough, fine = Attempt(goal, checkpoint, scored(0.06)), Attempt(goal, checkpoint, scored(0.04, 0.75))
    assert (rough.meets, rough.falls_short) == (False, True)
    assert (fine.meets, fine.falls_short) == (True, True)
    assert fine.improved(rough) is fine
    better = rough.improved(fine)
    assert better.result is fine.result
    assert better.goal.precision_choice.endswith("as which price: mse 0.0600 above 0.0500")


def missed(goal: Goal, accuracy: float, **costs: float) -> Attempt:
    """An attempt with a package of this accuracy, whose network has these costs."""
    return Attempt(goal, adapted(accuracy, **costs), package(accuracy))


SOURCE = {"latency_ms@host": 8.0, "latency_ms@host@float16": 8.0, "latency_ms@host@dynamic": 4.0} | {
    "latency_ms@host@int8": 3.2
}
FAST = replace(GOAL, budget={"latency_ms@host@int8": 2.0}, targets=overall(0.9))


def tried(attempt: Attempt, **floor: float) -> list[str]:
    return [goal.quantization.precision.value for goal in others(attempt, SOURCE, floor)]


def test_a_limit_that_is_missed_is_tried_at_every_precision_that_can_reach_it() -> None:
    slow = missed(FAST, 0.8, **{"latency_ms@host@int8": 2.1})
    assert tried(slow) == ["dynamic", "none", "float16"]
    assert tried(slow, **{"latency_ms@host@dynamic": 2.5}) == ["none", "float16"]
    (dynamic, *_) = others(slow, SOURCE, {})
    assert dict(dynamic.budget) == {"latency_ms@host@dynamic": 2.0}


def test_accuracy_that_is_missed_is_tried_where_more_of_the_network_is_left() -> None:
    assert tried(missed(FAST, 0.8, **{"latency_ms@host@int8": 1.9})) == []
    dynamic = at_other_precision(FAST, Quantization.DYNAMIC)
    assert tried(missed(dynamic, 0.8, **{"latency_ms@host@dynamic": 1.9})) == ["int8"]


def test_what_is_met_or_was_not_left_to_the_server_is_not_tried_again() -> None:
    met = missed(replace(FAST, targets=overall(0.7)), 0.8, **{"latency_ms@host@int8": 1.9})
    assert met.meets
    assert tried(met) == []
    assert tried(missed(replace(FAST, precision_choice=""), 0.8, **{"latency_ms@host@int8": 2.1})) == []


@pytest.mark.parametrize(
    ("accuracy", "precisions"),
    [
        (0.3, ["dynamic", "none", "float16"]),
        (0.76, ["dynamic"]),  # to halve the source costs as much as int8 has; to quarter it costs more
        (0.79, []),
    ],
)
def test_what_a_precision_has_lost_is_compared_with_what_others_would_cut(
    accuracy: float, precisions: list[str]
) -> None:
    """As int8 the limit leaves 63 % of the source, as dynamic half of it, as floats a quarter."""
    goal = replace(FAST, targets=())
    attempt = Attempt(goal, adapted(0.8, **{"latency_ms@host@int8": 1.9}), package(accuracy))
    assert attempt.meets
    assert tried(attempt) == precisions


def test_what_is_lost_is_a_share_of_the_greater() -> None:
    assert Attempt(GOAL, adapted(0.8), package(0.2)).lost == pytest.approx(0.75)
    assert Attempt(replace(GOAL, metric=Metric.MSE), adapted(0.2), package(0.8)).lost == pytest.approx(0.75)
    assert Attempt(GOAL, adapted(0.0), package(0.0)).lost == 0.0


def test_what_meets_the_limits_replaces_what_does_not_however_accurate() -> None:
    slow = missed(FAST, 0.8, **{"latency_ms@host@int8": 2.1})
    fast = missed(at_other_precision(FAST, Quantization.DYNAMIC), 0.6, **{"latency_ms@host@dynamic": 1.9})
    better = slow.improved(fast)
    assert better.goal.precision_choice == (
        "dynamic, in place of int8, as which it has latency_ms@host@int8 2.1 over 2"
    )
    assert fast.improved(slow) is fast
    noted = better.after_trying([Quantization.DYNAMIC, Quantization.NONE])
    assert noted.goal.precision_choice.endswith("; the goal was missed as float32, too")


async def test_a_smaller_network_is_tried_where_integers_lose_more_than_it_would(
    caller: Any, site: Any, make_config: Config
) -> None:
    """The limits leave 80 % of the network as int8, which loses five points, and 40 % as dynamic."""
    costs = {axis: cost for axis, cost in COSTS.items() if not axis.startswith("latency")}
    site.write("model.json", {"costs": costs, "floor": dict.fromkeys(costs, 1.0)})
    job = await caller.submit([{**make_config("a", memory=2_000), "quantization": "auto"}])
    assert job.goals[0].quantization.precision is Quantization.INT8
    (goal,) = (await caller.finished(job.id)).goals
    assert [task["budget"] for task in site.tasks("adapt")] == [
        {"memory_bytes@int8": 2_000},
        {"memory_bytes@dynamic": 2_000},
    ]
    assert (goal.state, goal.quantization.precision) == (GoalState.MET, Quantization.DYNAMIC)
    assert "in place of int8, as which accuracy was 75.0%" in goal.precision_choice


async def test_a_goal_is_missed_only_when_every_precision_misses_it(
    caller: Any, site: Any, make_config: Config
) -> None:
    """The limits leave 60 % of the network as int8, 30 % as dynamic; its checkpoint is over as int8 alone."""
    costs = {"flops": 1e6, "memory_bytes": 10_000.0, "memory_bytes@float16": 9_000.0}
    costs |= {"memory_bytes@dynamic": 5_000.0, "memory_bytes@int8": 2_500.0}
    site.write("model.json", {"costs": costs, "floor": dict.fromkeys(costs, 1.0)})
    over = json.dumps({f"memory_bytes@{name}": 1_501.0 for name in ("int8", "dynamic", "float16")})
    (site.control / "adapted-memory_bytes@int8").write_text(over)
    job = await caller.submit([{**make_config("a", memory=1_500), "quantization": "auto"}])
    assert job.goals[0].quantization.precision is Quantization.INT8
    (goal,) = (await caller.finished(job.id)).goals
    assert [task["budget"] for task in site.tasks("adapt")] == [
        {"memory_bytes@int8": 1_500},
        {"memory_bytes@dynamic": 1_500},
    ]
    assert goal.state is GoalState.MET
    assert goal.quantization.precision is Quantization.DYNAMIC
    assert "in place of int8" in goal.precision_choice


async def test_a_plan_says_which_precision_is_chosen_and_why(
    caller: Any, site: Any, make_config: Config
) -> None:
    costs = {"flops": 1e6, "memory_bytes": 10_000.0, "memory_bytes@int8": 2_500.0}
    costs |= {"memory_bytes@float16": 9_000.0, "memory_bytes@dynamic": 5_000.0}
    site.write("model.json", {"costs": costs, "floor": dict.fromkeys(costs, 1.0)})
    configs = [
        {**make_config("left", memory=1_500), "quantization": "auto"},
        {**make_config("named", memory=1_500), "quantization": "float16"},
    ]
    (batch,) = (await caller.plan(configs)).batches
    precisions = [dict(edge.precisions) for edge in batch.edges]
    assert precisions == [
        {"left": "int8, at which the limits leave 60% of the source, against 30% as dynamic, 17% as float16, "
         "15% as float32"},
        {},
    ]  # fmt: skip
