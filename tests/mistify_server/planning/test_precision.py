"""The choice of precision for goals that leave it to the server."""

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
        ({"size": "0.3x"}, "dynamic"),  # leaves less of the network in int8, but loses less accuracy
        ({"memory": "0.4x", "FLOP": "0.1x"}, "none"),  # multiply-adds are the tightest limit at any precision
        ({"memory": "0.02x", "FLOP": "0.1x"}, "int8"),
    ],
)
def test_the_choice_depends_on_the_limits(goal: dict[str, object], precision: str) -> None:
    assert chosen(config(**goal))[0] == precision
    assert chosen(config({"precision": "auto"}, **goal))[0] == precision


@pytest.mark.parametrize("goal", [{"FLOP": "0.5x"}, {"latency": "1x"}, {"memory": "1.2x"}])
@pytest.mark.parametrize("settings", [{"quantization": "auto"}, {}])
def test_integer_hardware_gets_int8(goal: dict[str, object], settings: dict[str, object]) -> None:
    """Even if no limit depends on the precision; no other precision is attempted."""
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
def test_measured_latencies_determine_the_choice(goal: dict[str, object], precision: str) -> None:
    inspection = Inspection(costs=COSTS, floor={})
    assert chosen(config(**goal), inspection)[0] == precision


def test_a_precision_at_which_no_network_is_fast_enough_is_not_chosen() -> None:
    floor = {f"latency_ms@{name}": 0.4 for name in ("host", "host@float16", "host@dynamic")}
    floor["latency_ms@host@int8"] = 0.2
    inspection = Inspection(costs=COSTS, floor=floor)
    asked = config(latency="0.3ms")
    at_int8, why = choose_precision(asked, inspection)
    assert (at_int8.quantization.precision, below_least(at_int8, inspection)) == (Quantization.INT8, {})
    assert why == "int8, the only precision at which the goal can be met"
    assert below_least(config("none", latency="0.3ms"), inspection) == {"latency_ms@host": 0.3}


@pytest.mark.parametrize(("limit", "precision"), [("0.5x", "dynamic"), ("0.25x", "none")])
def test_latencies_of_narrow_networks_are_considered(limit: str, precision: str) -> None:
    """At half the widths, float32 takes a quarter of the time, and `dynamic` as long as before."""
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
def test_by_default_the_precision_is_chosen_if_limits_depend_on_it(
    settings: dict[str, Any], goal: dict[str, object], precision: str
) -> None:
    fields = {"id": "a", "model": "m", "dataset": {"train": "a", "test": "b"}, "adaptation_goal": goal}
    (parsed,) = parse_batch(json.dumps({**fields, **settings}))
    inspection = Inspection(costs=COSTS, floor={})
    assert chosen(parsed, inspection)[0] == precision


def test_a_requested_precision_is_kept() -> None:
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
        ({"tuning": {"adaptation": True}}, "dynamic"),
    ],
)
def test_a_precision_has_to_be_compatible_with_other_settings(
    settings: dict[str, Any], precision: str
) -> None:
    assert chosen(config(settings=settings, memory="0.1x"))[0] == precision


@given(st.floats(0.01, 2), st.floats(0.01, 2), st.floats(0.01, 2))
def test_no_accuracy_is_sacrificed_without_a_benefit(memory: float, size: float, flop: float) -> None:
    """No safer precision leaves as much of the network as the chosen one."""
    asked = config(memory=f"{memory}x", size=f"{size}x", FLOP=f"{flop}x")
    actual = Quantization(chosen(asked)[0])

    def left(precision: Quantization) -> float:
        at = config(precision.value, memory=f"{memory}x", size=f"{size}x", FLOP=f"{flop}x")
        return min(1.0, *(limit / COSTS[axis] for axis, limit in goal_budget(at, COSTS).items()))

    assert all(left(other) < left(actual) for other in STORED if KNOWN_LOSS[other] < KNOWN_LOSS[actual])


Config = Callable[..., dict[str, object]]


@pytest.fixture
async def tight(caller: Any, site: Any, make_config: Config) -> Callable[..., Any]:
    """Return an ended job with a goal adapted for int8, where packages lose ten points."""
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


async def test_an_insufficient_package_is_made_again_at_the_next_safer_precision(
    site: Any, tight: Any
) -> None:
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


async def test_without_a_safer_precision_within_the_limits_the_package_is_kept(site: Any, tight: Any) -> None:
    goal = await tight({"dynamic": 2_401.0, "float16": 2_401.0})
    assert packaged_as(site) == ["int8", "int8-qat", "dynamic", "float16"]
    assert (goal.state, goal.spec.quantization.precision) == (GoalState.MET, Quantization.INT8)


async def test_a_requested_precision_is_never_replaced(
    caller: Any, site: Any, make_config: Config, tight: Any
) -> None:
    await tight({"dynamic": 1.0})
    job = await caller.submit([{**make_config("a", FLOP="0.5x"), "quantization": "int8"}])
    (goal,) = (await caller.finished(job.id)).goals
    assert packaged_as(site) == ["int8", "int8-qat", "dynamic", "int8"]
    assert goal.spec.quantization.precision is Quantization.INT8
    assert goal.precision_choice == ""


async def test_added_goals_can_leave_the_precision_to_the_server(
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


async def test_a_smaller_network_is_tried_if_int8_loses_more(
    caller: Any, site: Any, make_config: Config
) -> None:
    """The limits leave 80% of the network in int8, which loses ten points, and 40% in dynamic."""
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
    """The limits leave 60% of the network in int8, and 30% in dynamic; only in int8 are they exceeded."""
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


async def test_a_plan_states_the_chosen_precision_and_the_reason(
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
