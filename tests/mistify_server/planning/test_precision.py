"""The precision of goals that leave it to the server."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.config.porting import PortingConfig
from mistify.config.reading import goal_budget, parse_batch
from mistify.costs.quantization import STORED, Quantization
from mistify.jobs.job import Goal, GoalState
from mistify_server.planning.limits import below_least
from mistify_server.planning.precision import (
    KNOWN_LOSS,
    choose_precision,
)
from mistify_server.tasks.estimates import EdgeEstimates, NetworkFeatures
from mistify_server.tasks.results import Inspection

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


@pytest.mark.parametrize("goal", [{"FLOP": "0.5x"}, {"latency": "1x"}, {"memory": "1.2x"}])
@pytest.mark.parametrize("settings", [{"quantization": "auto"}, {}])
def test_hardware_for_integers_gets_integers(goal: dict[str, object], settings: dict[str, object]) -> None:
    """Also where no limit depends on the precision; and nothing is tried in their place."""
    given = {"id": "a", "model": "m", "dataset": {"train": "a", "test": "b"}, "adaptation_goal": goal}
    (asked,) = parse_batch(json.dumps({**given, "hardware": "edge-tpu", **settings}))
    assert asked.leaves_precision
    assert chosen(asked) == ("int8", "")


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
        features=NetworkFeatures(model="m", kind="convolutional", blocks=0),
        source_steps=0,
        profiles={},
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
        "int8, at which 80% of the source fits the limits (dynamic 40%, float16 33%, float32 20%)",
    )
    assert chosen(config(FLOP="0.25x")) == (
        "none",
        "float32, at which 25% of the source fits the limits (float16 25%, dynamic 25%, int8 25%)",
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
    """A job of a goal that is adapted at int8, where packages lose ten points; it has ended."""
    costs = {axis: cost for axis, cost in COSTS.items() if not axis.startswith("latency")}
    site.write("model.json", {"costs": costs, "floor": {axis: cost / 1000 for axis, cost in costs.items()}})

    async def ported(adapted: dict[str, float], **more: object) -> Goal:
        (site.control / "adapted").write_text(
            json.dumps({f"memory_bytes@{p}": c for p, c in adapted.items()})
        )
        job = await caller.submit([{**make_config("a", memory=2_400), "quantization": "auto", **more}])
        assert job.goals[0].spec.quantization.precision is Quantization.INT8
        assert dict(job.goals[0].spec.budget) == {"memory_bytes@int8": 2_400}
        assert job.goals[0].precision_choice.startswith("int8, at which 96%")
        return (await caller.finished(job.id)).goals[0]

    return ported


def packaged_as(site: Any) -> list[str]:
    return [task["spec"]["quantization"]["precision"] for task in site.tasks("package")]


async def test_a_package_that_falls_short_is_made_at_the_next_safer_precision(site: Any, tight: Any) -> None:
    goal = await tight({"dynamic": 2_401.0, "float16": 2_399.0})
    assert packaged_as(site) == ["int8", "int8-qat", "float16"]
    assert site.tasks("package")[1]["spec"]["budget"] == {"memory_bytes@int8": 2_400}
    assert site.tasks("package")[2]["spec"]["budget"] == {"memory_bytes@float16": 2_400}
    assert goal.state is GoalState.MET
    assert goal.spec.quantization.precision is Quantization.FLOAT16
    assert dict(goal.spec.budget) == {"memory_bytes@float16": 2_400}
    assert goal.accuracy == pytest.approx(0.8)
    expected = "float16 instead of int8, with which accuracy was 70.0%, compared with the checkpoint's 80.0%"
    assert goal.precision_choice == expected


async def test_without_a_safer_precision_within_the_limits_the_package_stays(site: Any, tight: Any) -> None:
    goal = await tight({"dynamic": 2_401.0, "float16": 2_401.0})
    assert packaged_as(site) == ["int8", "int8-qat", "dynamic", "float16"]
    assert (goal.state, goal.spec.quantization.precision) == (GoalState.MET, Quantization.INT8)


async def test_a_precision_that_was_asked_for_is_never_replaced(
    caller: Any, site: Any, make_config: Config, tight: Any
) -> None:
    await tight({"dynamic": 1.0})
    job = await caller.submit([{**make_config("a", FLOP="0.5x"), "quantization": "int8"}])
    (goal,) = (await caller.finished(job.id)).goals
    assert packaged_as(site) == ["int8", "int8-qat", "dynamic", "int8"]
    assert goal.spec.quantization.precision is Quantization.INT8
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
    assert (b.spec.quantization.precision, c.spec.quantization.precision) == (
        Quantization.DYNAMIC,
        Quantization.NONE,
    )
    assert b.precision_choice.startswith("dynamic instead of int8")


async def test_a_smaller_network_is_tried_where_integers_lose_more_than_it_would(
    caller: Any, site: Any, make_config: Config
) -> None:
    """The limits leave 80 % of the network as int8, which loses ten points, and 40 % as dynamic."""
    costs = {axis: cost for axis, cost in COSTS.items() if not axis.startswith("latency")}
    site.write("model.json", {"costs": costs, "floor": dict.fromkeys(costs, 1.0)})
    job = await caller.submit([{**make_config("a", memory=2_000), "quantization": "auto"}])
    assert job.goals[0].spec.quantization.precision is Quantization.INT8
    (goal,) = (await caller.finished(job.id)).goals
    assert [task["budget"] for task in site.tasks("adapt")] == [
        {"memory_bytes@int8": 2_000},
        {"memory_bytes@dynamic": 2_000},
    ]
    assert (goal.state, goal.spec.quantization.precision) == (GoalState.MET, Quantization.DYNAMIC)
    assert "instead of int8, with which accuracy was 70.0%" in goal.precision_choice


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
    assert job.goals[0].spec.quantization.precision is Quantization.INT8
    (goal,) = (await caller.finished(job.id)).goals
    assert [task["budget"] for task in site.tasks("adapt")] == [
        {"memory_bytes@int8": 1_500},
        {"memory_bytes@dynamic": 1_500},
    ]
    assert goal.state is GoalState.MET
    assert goal.spec.quantization.precision is Quantization.DYNAMIC
    assert "instead of int8" in goal.precision_choice


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
        {"left": "int8, at which 60% of the source fits the limits (dynamic 30%, float16 17%, "
         "float32 15%)"},
        {},
    ]  # fmt: skip
