import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mistify.config.data.metric import Metric
from mistify.config.data.targets import Target
from mistify.config.package.branches import BranchesConfig
from mistify.config.package.exits import ExitsConfig
from mistify.config.package.tuning import TuningConfig
from mistify.config.porting import PortingConfig
from mistify.config.reading import collective_batches, parse_batch
from mistify.costs.budget import meets
from mistify.costs.catalogue import HOST, catalogue
from mistify.costs.profiles import NominalProfile
from mistify_server.planning.batch import ResolvedBatch
from mistify_server.planning.batch_plan import expansion, plan_batch
from mistify_server.planning.limits import unreachable
from mistify_server.tasks.recipe import derived_seed
from mistify_server.tasks.results import Inspection
from mistify_server.tasks.sources import DataSource, ModelSource
from tests.support.targets import overall

COSTS = {"flops": 1e6, "params": 1e3, "memory_bytes": 1e4, "size_bytes": 1e4, "latency_ms@jetson-nano": 2.0}


def resolved(
    *goals: dict[str, object], quantization: Sequence[str] | None = None, **settings: object
) -> ResolvedBatch:
    configs: list[dict[str, Any]] = [
        {
            "id": f"g{number}",
            "model": "m",
            "dataset": {"train": "a", "test": "b"},
            "algorithm": {"name": "morphnet", "config": settings},
            "adaptation_goal": goal,
            "hardware": "jetson-nano",
            "quantization": quantization[number] if quantization else "none",
        }
        for number, goal in enumerate(goals)
    ]
    (batch,) = collective_batches(parse_batch(json.dumps(configs)))
    return ResolvedBatch(3, batch, ModelSource(builtin="m"), DataSource(train="a", test="b"))


def with_configs(resolved: ResolvedBatch, *configs: PortingConfig) -> ResolvedBatch:
    """Return the batch with other configs."""
    return replace(resolved, batch=replace(resolved.batch, configs=configs))


def inspection(**floor: float) -> Inspection:
    return Inspection(costs=COSTS, floor=floor)


def test_equal_budgets_share_a_node_and_its_strictest_target() -> None:
    plan, goals = plan_batch(
        resolved(
            {"FLOP": "0.5x", "accuracy": "0.7"}, {"FLOP": 500_000, "accuracy": "0.9"}, {"FLOP": "0.25x"}
        ),
        inspection(),
    )
    assert [(node.goals, node.parent, node.targets) for node in plan.nodes] == [
        (("g0", "g1"), None, overall(0.9)),
        (("g2",), 0, ()),
    ]
    assert [(goal.id, goal.parent, goal.spec.targets, goal.batch) for goal in goals] == [
        ("g0", None, overall(0.7), 3),
        ("g1", None, overall(0.9), 3),
        ("g2", "g0", (), 3),
    ]
    assert goals[2].spec.budget == {"flops": 250_000}


METRICS = {"kind": Metric.ACCURACY, "price": Metric.MAE}


def test_shared_nodes_have_the_strictest_target_of_each_output_in_its_metric() -> None:
    asked = {"price": 2.5}, {"kind": "0.8", "price": 0.5}, {"kind": "0.9"}, "0.7"
    goals: list[dict[str, object]] = [{"FLOP": "0.5x", "accuracy": accuracy} for accuracy in asked]
    plan, placed = plan_batch(
        resolved(*goals), Inspection(costs=COSTS, floor={}, metric=Metric.MEAN_SCORE, metrics=METRICS)
    )
    assert placed[1].spec.targets == (Target("kind", Metric.ACCURACY, 0.8), Target("price", Metric.MAE, 0.5))
    assert placed[3].spec.targets == overall(0.7, Metric.MEAN_SCORE)
    (node,) = plan.nodes
    assert set(node.targets) == {
        Target("kind", Metric.ACCURACY, 0.9),
        Target("price", Metric.MAE, 0.5),
        *overall(0.7, Metric.MEAN_SCORE),
    }
    assert plan.recipe.data.settings.metrics == METRICS


@pytest.mark.parametrize(
    ("accuracy", "place", "value", "said"),
    [
        ({"prize": 0.5}, ".prize", '"prize"', 'one of kind, price; did you mean "price"?'),
        ({"kind": 80}, ".kind", "80.0", "accuracy, a share"),
    ],
)
def test_an_impossible_target_is_refused(accuracy: object, place: str, value: str, said: str) -> None:
    known = Inspection(costs=COSTS, floor={}, metric=Metric.MEAN_SCORE, metrics=METRICS)
    goals: list[dict[str, object]] = [{"FLOP": "0.5x"}, {"FLOP": "0.5x", "accuracy": accuracy}]
    (problem,) = unreachable(resolved(*goals), known)
    assert (problem.place, problem.value) == (f"[1].adaptation_goal.accuracy{place}", value)
    assert said in f"{problem.expected}; {problem.fix}"
    assert list(unreachable(resolved({"FLOP": "0.5x", "accuracy": {"price": 80}}), known)) == []


def test_goals_that_differ_only_in_precision_share_a_node() -> None:
    plan, goals = plan_batch(
        resolved({"FLOP": "0.5x"}, {"FLOP": "0.5x"}, quantization=["none", "int8"]), inspection()
    )
    assert [node.goals for node in plan.nodes] == [("g0", "g1")]
    assert [goal.spec.quantization.precision.value for goal in goals] == ["none", "int8"]


def test_memory_is_limited_at_the_precision_of_the_goal() -> None:
    plan, _ = plan_batch(
        resolved({"memory": "0.5x"}, {"memory": "0.5x"}, quantization=["none", "int8"]), inspection()
    )
    assert [node.budget for node in plan.nodes] == [{"memory_bytes": 5e3}, {"memory_bytes@int8": 5e3}]


def test_goals_with_other_threads_have_their_own_axes() -> None:
    """Neither goal is adapted from the other, but goals without a latency limit share a network."""
    goals: list[dict[str, object]] = [
        {"latency": "1ms"},
        {"latency": "0.5ms"},
        {"FLOP": "0.5x"},
        {"FLOP": "0.5x"},
    ]
    batch = resolved(*goals)
    threaded = [
        config.model_copy(update={"threads": 1 + 3 * (n % 2)}) for n, config in enumerate(batch.batch.configs)
    ]
    batch = with_configs(batch, *threaded)
    costs = {**COSTS, "latency_ms@jetson-nano@4-threads": 1.0}
    plan, planned = plan_batch(batch, Inspection(costs=costs, floor={}))
    assert [(node.goals, node.parent) for node in plan.nodes] == [
        (("g0",), None),
        (("g1",), None),
        (("g2", "g3"), None),
    ]
    assert [goal.spec.threads for goal in planned] == [1, 4, 1, 4]
    assert planned[1].spec.budget == {"latency_ms@jetson-nano@4-threads": 0.5}
    names = {"host", "jetson-nano"}
    assert batch.hardware.keys() == names | {f"{name}@4-threads" for name in names}


def test_nodes_come_after_their_parents_depth_first() -> None:
    plan, _ = plan_batch(
        resolved(
            {"FLOP": "0.2x", "memory": "0.9x"},
            {"FLOP": "0.9x", "memory": "0.9x"},
            {"FLOP": "0.9x", "memory": "0.2x"},
            {"FLOP": "0.1x", "memory": "0.8x"},
        ),
        inspection(),
    )
    assert [node.goals[0] for node in plan.nodes] == ["g1", "g0", "g3", "g2"]
    budgets = {node.index: node.budget for node in plan.nodes}
    assert all(meets(node.budget, budgets[node.parent]) for node in plan.nodes if node.parent is not None)


def test_the_plan_uses_the_hardware_calibrated_by_the_worker() -> None:
    calibrated = NominalProfile("jetson-nano", 1.0, 2.0)
    measured = Inspection(costs=COSTS, floor={}, hardware={"jetson-nano": calibrated})
    batch = resolved({"latency": "0.5x"})
    assert batch.inspect_task().recipe.hardware == {"host": HOST, "jetson-nano": catalogue()["jetson-nano"]}
    plan, (goal,) = plan_batch(batch, measured)
    assert plan.recipe.hardware == {"host": HOST, "jetson-nano": calibrated}
    assert goal.spec.budget == {"latency_ms@jetson-nano": 1.0}


def test_the_source_is_not_widened_for_smaller_goals() -> None:
    assert expansion([{"flops": 1e6}, {"params": 10.0}], COSTS) == {}


def test_a_source_that_meets_an_integer_goal_in_float32_is_not_widened() -> None:
    costs = {"memory_bytes": 1e4, "memory_bytes@int8": 3e3}
    assert expansion([{"memory_bytes@int8": 9e3}], costs) == {}
    assert expansion([{"memory_bytes@int8": 2e4}], costs) == {"memory_bytes@int8": 12e3}


def test_the_source_is_widened_to_the_largest_root_goal_up_to_four_times() -> None:
    budgets = [{"flops": 2e6, "params": 1e5}, {"flops": 3e6}, {"memory_bytes": 10.0}]
    assert expansion(budgets, COSTS) == {"flops": 3e6, "params": 4e3}


def test_seeds_are_derived_from_the_settings() -> None:
    plans = [
        plan_batch(resolved({"FLOP": "0.5x"}, {"FLOP": "0.2x"}, seed=seed), inspection())[0]
        for seed in (1, 1, 2)
    ]
    seeds = [(plan.recipe.seed, *(node.seed for node in plan.nodes)) for plan in plans]
    assert seeds[0] == seeds[1] != seeds[2]
    assert len(set(seeds[0])) == 3
    assert derived_seed({}, 0) == derived_seed({"seed": 0}, 0)


@pytest.mark.parametrize(
    ("goal", "floor", "message"),
    [
        (
            {"FLOP": "0.01x"},
            {"flops": 125_000.0},
            '[0].adaptation_goal.FLOP: got "0.01x" (10,000 multiply-adds); expected at least 125,000 '
            'multiply-adds, the least that this network can reach; write "0.125x", the nearest feasible '
            "limit, or start from a smaller model",
        ),
        (
            {"num_of_params": 5},
            {"params": 10.0},
            "[0].adaptation_goal.num_of_params: got 5 parameters; expected at least 10 parameters, the least "
            'that this network can reach; write "10", the nearest feasible limit, or start from a smaller '
            "model",
        ),
        (
            {"latency": "0.5ms"},
            {"latency_ms@jetson-nano": 0.75},
            "[0].adaptation_goal.latency: got 0.5 ms; expected at least 0.75 ms, the least that this network "
            'can reach; write "938us", the nearest feasible limit, or start from a smaller model',
        ),
    ],
)
def test_a_goal_below_the_smallest_possible_network_is_a_problem(
    goal: dict[str, object], floor: dict[str, float], message: str
) -> None:
    (problem,) = unreachable(resolved(goal), inspection(**floor))
    assert str(problem) == message


def test_a_goal_at_the_smallest_possible_network_is_accepted() -> None:
    assert list(unreachable(resolved({"FLOP": 125_000}), inspection(flops=125_000.0))) == []


@pytest.mark.parametrize("part", ["head", 2])
def test_a_model_without_structure_cannot_be_trained_on_a_device(part: str | int) -> None:
    fixed = Inspection(costs=COSTS, floor=COSTS, adaptable=False)
    plain = resolved({"FLOP": "1x"}, {"FLOP": "1x"})
    tuned = plain.batch.configs[1].model_copy(update={"tuning": TuningConfig(trainable=part)})
    (problem,) = unreachable(with_configs(plain, plain.batch.configs[0], tuned), fixed)
    assert (problem.place, problem.value) == ("[1].tuning.trainable", json.dumps(part))
    assert problem.expected.startswith('"none", because it needs layers: this model has no Keras structure')
    assert problem.fix == "leave it out"


def test_a_model_without_structure_has_no_exits() -> None:
    fixed = Inspection(costs=COSTS, floor=COSTS, adaptable=False)
    plain = resolved({"FLOP": "1x"})
    early = plain.batch.configs[0].model_copy(update={"exits": ExitsConfig(loss=(0.01,))})
    (problem,) = unreachable(with_configs(plain, early), fixed)
    assert (problem.place, problem.value, problem.fix) == ("[0].exits", "losses of 1%", "leave them out")
    assert problem.expected.startswith("none, because their heads have to be trained: this model has no")


def test_a_model_without_structure_has_no_losses_and_no_layers() -> None:
    fixed = Inspection(costs=COSTS, floor=COSTS, adaptable=False)
    (plain,) = resolved({"FLOP": "1x"}).batch.configs
    losses, layers = {"box": "iou"}, {"stem*": "keep"}
    with_both = plain.model_copy(
        update={
            "dataset": plain.dataset.model_copy(update={"losses": losses}),
            "algorithm": plain.algorithm.model_copy(update={"config": {"layers": layers}}),
        }
    )
    problems = list(unreachable(with_configs(resolved({"FLOP": "1x"}), with_both), fixed))
    assert {problem.place: problem.value for problem in problems} == {
        "[0].dataset.losses": json.dumps(losses),
        "[0].algorithm.config.layers": json.dumps(layers),
    }


def test_unsuitable_settings_for_a_model_without_structure_are_reported() -> None:
    """Limits that the unchanged model meets are accepted at any precision."""
    fixed = Inspection(costs=COSTS, floor=COSTS, adaptable=False)
    fits = resolved({"FLOP": "1x", "size": "20KB"}, {"num_of_params": 5000}, quantization=["none", "int8"])
    assert list(unreachable(fits, fixed)) == []
    cut = resolved({"FLOP": "0.5x"}, {"FLOP": "1x"}, quantization=["none", "int8-qat"])
    training, limit = unreachable(cut, fixed)
    assert limit.place == "[0].adaptation_goal.FLOP"
    assert "at least 1,000,000 multiply-adds" in limit.expected
    assert training.place == "[1].quantization"
    for problem in (training, limit):
        assert "no Keras structure, so it can only be quantized" in problem.expected


@pytest.mark.parametrize("names", [("image",), ("image", "branch")])
def test_the_name_of_the_branch_input_cannot_be_used_by_another_input(names: tuple[str, ...]) -> None:
    plain = resolved({"FLOP": "1x"}, {"FLOP": "0.5x"})
    branches = BranchesConfig.model_validate({"count": 2, "from": "0.5x", "to": "1x"})
    branched = plain.batch.configs[1].model_copy(update={"branches": branches})
    actual = Inspection(costs=COSTS, floor={}, inputs=names)
    problems = list(unreachable(with_configs(plain, plain.batch.configs[0], branched), actual))
    assert [(problem.place, problem.value) for problem in problems] == (
        [("[1].branches", '2 branches of a model with an input "branch"')] if "branch" in names else []
    )
    assert all('rename the input "branch"' in problem.fix for problem in problems)
