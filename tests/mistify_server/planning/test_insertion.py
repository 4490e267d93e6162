"""The starting points of added goals, compared with a brute-force definition over all pairs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.config.data.dataset import DatasetConfig
from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import Scores, Target
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.task import TaskConfig
from mistify.costs.quantization import Quantization
from mistify.jobs.job import Goal, GoalState
from mistify.jobs.package_spec import PackageSpec
from mistify_server.planning.insertion import NodeOffer, insert_goals, node_offers
from mistify_server.store.plans import BatchPlan, BatchState, NodePlan
from mistify_server.tasks.recipe import Recipe, derived_seed
from mistify_server.tasks.results import AdaptResult
from mistify_server.tasks.sources import DataSource, ModelSource
from tests.support.targets import overall

AXES = ("flops", "params")

# Few distinct limits and targets, so that ties, equal budgets and equal products (2 * 8 = 4 * 4) are common.
BUDGETS = st.dictionaries(st.sampled_from(AXES), st.sampled_from([1.0, 2.0, 3.0, 4.0, 8.0]), min_size=1)
TARGETS = st.sampled_from([None, 0.5, 0.7, 0.9])
ASKED = st.lists(st.tuples(BUDGETS, TARGETS), max_size=6)

BARE = BatchPlan(
    number=2,
    model_name="m",
    dataset=DatasetConfig(train="a", test="b"),
    recipe=Recipe(
        model=ModelSource(builtin="m"),
        data=DataSource(train="a", test="b"),
        algorithm="morphnet",
        settings={"seed": 3},
        hardware={},
        seed=0,
    ),
    source_costs={"flops": 10.0, "params": 10.0},
    floor={},
    exceed={},
    nodes=(),
)

FLOAT32 = QuantizationConfig()

Asked = Sequence[tuple[dict[str, float], float | None]]


def goals_of(asked: Asked, prefix: str) -> list[Goal]:
    return [
        Goal(f"{prefix}{number}", batch=2, spec=PackageSpec(budget, targets=overall(target)))
        for number, (budget, target) in enumerate(asked)
    ]


def value_of(targets: Sequence[Target]) -> float:
    return targets[0].value if targets else 0.0


def at(accuracy: float) -> NodeOffer:
    return NodeOffer(Scores(accuracy), (FLOAT32,))


def limit(budget: Mapping[str, float], axis: str) -> float:
    return budget.get(axis, math.inf)


def is_looser(a: Mapping[str, float], b: Mapping[str, float]) -> bool:
    return a != b and all(limit(a, axis) >= limit(b, axis) for axis in AXES)


def nearest_looser(
    budget: Mapping[str, float], candidates: Sequence[Mapping[str, float]]
) -> Mapping[str, float] | None:
    """Return the looser candidate with the least remaining work, or the first of several."""

    def finite(candidate: Mapping[str, float], axis: str) -> float:
        known = [limit(other, axis) for other in candidates if axis in other]
        return candidate.get(axis, max(known, default=1.0))

    looser = [candidate for candidate in candidates if is_looser(candidate, budget)]
    work = [
        round(sum(math.log(finite(candidate, axis) / finite(budget, axis)) for axis in AXES), 8)
        for candidate in looser
    ]
    return looser[work.index(min(work))] if looser else None


@given(ASKED, ASKED, st.data())
def test_new_goals_start_from_their_nearest_looser_checkpoint(first: Asked, later: Asked, data: Any) -> None:
    plan, _ = insert_goals(BARE, {}, goals_of(first, "old"))
    accuracies = st.sampled_from([0.0, 0.6, 0.8])
    offers = {
        node.index: at(data.draw(accuracies, label=f"accuracy of {node.goals}"))
        for node in plan.nodes
        if data.draw(st.booleans(), label=f"{node.goals} has a checkpoint")
    }
    asked = goals_of(later, "new")
    grown, placed = insert_goals(plan, offers, asked)

    nodes = {node.index: node for node in grown.nodes}
    node_of = {goal_id: node for node in grown.nodes for goal_id in node.goals}
    live = [node for node in sorted(plan.nodes, key=lambda node: node.index) if node.index in offers]
    budgets = [node.budget for node in live]
    budgets += [goal.spec.budget for goal in asked if goal.spec.budget not in budgets]
    budgets = [budget for place, budget in enumerate(budgets) if budget not in budgets[:place]]
    for goal in asked:
        node, target = node_of[goal.id], value_of(goal.spec.targets)
        equal = [other for other in live if other.budget == goal.spec.budget]
        enough = [other for other in equal if offers[other.index].scores.overall >= target]
        assert node.budget == goal.spec.budget
        if enough:
            assert node.index == enough[0].index
            continue
        assert node.index not in {other.index for other in plan.nodes}
        assert value_of(node.targets) >= target
        if equal:
            assert node.parent is not None
            best = max(offers[other.index].scores.overall for other in equal)
            assert offers[node.parent].scores.overall == best
            assert nodes[node.parent].budget == goal.spec.budget
            continue
        expected = nearest_looser(goal.spec.budget, budgets)
        actual = None if node.parent is None else nodes[node.parent].budget
        assert actual == expected
        if node.parent in {other.index for other in plan.nodes}:
            assert node.parent in offers
    for goal in placed:
        parent = node_of[goal.id].parent
        assert goal.parent == (None if parent is None else nodes[parent].goals[0])


@given(ASKED, ASKED, st.sets(st.integers(0, 5)))
def test_existing_nodes_are_kept_and_every_node_follows_its_parent(
    first: Asked, later: Asked, live: set[int]
) -> None:
    plan, _ = insert_goals(BARE, {}, goals_of(first, "old"))
    offers = {node.index: at(0.6) for node in plan.nodes if node.index in live}
    asked = goals_of(later, "new")
    grown, placed = insert_goals(plan, offers, asked)

    assert [goal.id for goal in placed] == [goal.id for goal in asked]
    for before, after in zip(plan.nodes, grown.nodes, strict=False):
        assert after.goals[: len(before.goals)] == before.goals
        assert after.model_copy(update={"goals": before.goals}) == before
    seen: set[int | None] = {None}
    for node in grown.nodes:
        assert node.parent in seen
        assert node.index not in seen
        seen.add(node.index)
        assert node.seed == derived_seed(BARE.recipe.settings, node.index)
    served = [goal_id for node in grown.nodes for goal_id in node.goals]
    assert sorted(served) == sorted(goal.id for goal in (*goals_of(first, "old"), *asked))


@given(ASKED)
def test_a_plan_does_not_depend_on_the_order_in_which_goals_were_added(asked: Asked) -> None:
    """Adding all goals at once or the looser ones first gives the same parents, except at equal budgets."""
    budgets = [{"flops": float(8 - number)} for number in range(len(asked))]
    chain = goals_of([(budget, None) for budget in budgets], "g")
    at_once, _ = insert_goals(BARE, {}, chain)
    one_by_one = BARE
    for goal in chain:
        one_by_one, _ = insert_goals(one_by_one, {node.index: at(0.0) for node in one_by_one.nodes}, [goal])
    assert one_by_one == at_once


def chain_of(*limits: float) -> BatchPlan:
    return insert_goals(BARE, {}, goals_of([({"flops": limit}, None) for limit in limits], "g"))[0]


@pytest.mark.parametrize(
    ("limit", "made", "parent"),
    [
        (3.0, {0, 1, 2}, 1),  # between two nodes: the looser one
        (3.0, {0, 2}, 0),  # the parent will have no checkpoint: the next one above
        (3.0, {2}, None),  # none above: the root
        (9.0, {0, 1, 2}, None),  # looser than all: the root
        (1.0, {0, 1, 2}, 2),
    ],
)
def test_a_goal_is_inserted_into_a_chain(limit: float, made: set[int], parent: int | None) -> None:
    plan, offers = chain_of(8.0, 4.0, 2.0), dict.fromkeys(made, at(0.8))
    grown, (placed,) = insert_goals(plan, offers, goals_of([({"flops": limit}, None)], "n"))
    assert grown.nodes[:3] == plan.nodes
    assert (grown.nodes[3].parent, grown.nodes[3].goals) == (parent, ("n0",))
    assert placed.parent == (None if parent is None else f"g{parent}")


def test_more_accuracy_is_tuned_from_the_best_checkpoint_of_the_budget() -> None:
    plan, offers = chain_of(4.0), {0: at(0.8)}
    budget = {"flops": 4.0}
    plan, placed = insert_goals(
        plan, offers, goals_of([(budget, 0.8), (budget, 0.85), (budget, None), (budget, 0.9)], "n")
    )
    assert [(node.goals, node.parent, node.targets) for node in plan.nodes] == [
        (("g0", "n0", "n2"), None, ()),
        (("n1", "n3"), 0, overall(0.9)),
    ]
    assert [goal.parent for goal in placed] == [None, "g0", None, "g0"]
    plan, placed = insert_goals(
        plan,
        {0: at(0.8), 1: at(0.87)},
        goals_of([(budget, 0.86), (budget, 0.95), ({"flops": 2.0}, None)], "m"),
    )
    assert [(node.goals, node.parent) for node in plan.nodes] == [
        (("g0", "n0", "n2"), None),
        (("n1", "n3", "m0"), 0),
        (("m1",), 1),
        (("m2",), 0),
    ]
    assert [goal.parent for goal in placed] == ["g0", "n1", "g0"]


@pytest.mark.parametrize(
    ("axis", "joins"),
    [("latency_ms@host", False), ("latency_ms@jetson-nano", False), ("flops", True), ("size_bytes", True)],
)
def test_a_checkpoint_is_reused_for_a_latency_limit_at_measured_precisions(axis: str, *, joins: bool) -> None:
    asked = [
        Goal(
            name, batch=2, spec=PackageSpec({axis: 4.0}, quantization=QuantizationConfig(precision=precision))
        )
        for name, precision in [
            ("a", Quantization.INT8),
            ("b", Quantization.INT8),
            ("c", Quantization.NONE),
            ("d", Quantization.FLOAT16),
        ]
    ]
    plan, _ = insert_goals(BARE, {}, asked[:1])
    plan, placed = insert_goals(plan, offers_of(plan, asked), asked[1:])
    nodes = [(node.goals, node.parent) for node in plan.nodes]
    if joins:
        assert nodes == [(("a", "b", "c", "d"), None)]
    else:
        assert nodes == [(("a", "b"), None), (("c", "d"), 0)]
        assert [goal.parent for goal in placed] == [None, "a", "a"]
        later = [replace(goal, id=f"later-{goal.id}") for goal in asked]
        plan, _ = insert_goals(plan, offers_of(plan, asked), later)
        assert [node.goals for node in plan.nodes] == [
            ("a", "b", "later-a", "later-b"),
            ("c", "d", "later-c", "later-d"),
        ]


def test_a_checkpoint_is_reused_for_a_goal_with_output_targets_that_it_reaches() -> None:
    def priced(*targets: float) -> tuple[Target, ...]:
        return tuple(Target("price", Metric.MAE, value) for value in targets)

    def placed(offer: NodeOffer) -> list[tuple[str, ...]]:
        asked = (priced(0.2), priced(0.1), priced(0.15), priced(0.3))
        goals = [
            Goal(f"n{n}", batch=2, spec=PackageSpec({"flops": 4.0}, targets=targets))
            for n, targets in enumerate(asked)
        ]
        plan, _ = insert_goals(chain_of(4.0), {0: offer}, goals)
        assert [node.targets for node in plan.nodes[1:]] == [priced(0.1)]
        return [node.goals for node in plan.nodes]

    made = Scores(0.8, (OutputScore("kind", Metric.ACCURACY, 0.9), OutputScore("price", Metric.MAE, 0.2)))
    assert placed(NodeOffer(made, (FLOAT32,))) == [("g0", "n0", "n3"), ("n1", "n2")]
    assert placed(at(0.8)) == [("g0",), ("n0", "n1", "n2", "n3")]


def test_a_planned_node_offers_the_targets_of_its_outputs() -> None:
    price = Target("price", Metric.MAE, 0.1)
    plan, _ = insert_goals(BARE, {}, [Goal("a", 2, PackageSpec({"flops": 4.0}, targets=(price,)))])
    goals = [Goal("a", 2, PackageSpec({"flops": 4.0}), state=GoalState.RUNNING)]
    (offer,) = node_offers(BatchState(plan, None, {}), goals).values()
    assert offer.scores == Scores(0.0, (OutputScore("price", Metric.MAE, 0.1),))


def offers_of(plan: BatchPlan, goals: Sequence[Goal]) -> dict[int, NodeOffer]:
    """Return the offers of all nodes if every node has a checkpoint."""
    made = AdaptResult(checkpoint="c", costs={}, accuracy=0.8, met=True, reason="", steps=1)
    return node_offers(BatchState(plan, None, {node.index: made for node in plan.nodes}), goals)


def test_a_node_without_a_future_offers_nothing() -> None:
    nodes = [
        NodePlan(
            index=i, parent=None, budget={"flops": 1.0 + i}, targets=overall(target), seed=0, goals=goals
        )
        for i, (target, goals) in enumerate([(0.9, ("made",)), (0.7, ("failed", "open")), (None, ("gone",))])
    ]
    made = AdaptResult(checkpoint="c", costs={}, accuracy=0.8, met=False, reason="", steps=1)
    plan = BARE.model_copy(update={"nodes": (*nodes, nodes[2].model_copy(update={"index": 3}))})
    states = {"made": GoalState.MET, "failed": GoalState.FAILED, "open": GoalState.RUNNING}
    goals = [
        Goal(name, 2, PackageSpec({}), state=states.get(name, GoalState.CANCELLED))
        for node in nodes
        for name in node.goals
    ]
    assert node_offers(BatchState(plan, None, {0: made}), goals) == {
        0: at(0.8),
        1: NodeOffer(Scores(0.7), (FLOAT32, FLOAT32)),
    }


def test_goals_of_another_task_have_nodes_and_parents_of_their_own() -> None:
    tasks = (None, TaskConfig(classes=("cat", "dog")), TaskConfig(properties=("odd",)))
    asked = [
        Goal(f"{number}-{limit}", batch=2, spec=PackageSpec({"flops": limit}, task=task))
        for limit in (4.0, 2.0)
        for number, task in enumerate(tasks)
    ]
    plan, goals = insert_goals(BARE, {}, asked)
    assert [node.task for node in plan.nodes] == [task for task in tasks for _ in range(2)]
    assert len({node.index for node in plan.nodes}) == 6
    assert len({node.seed for node in plan.nodes}) == 6
    assert {goal.id: goal.parent for goal in goals} == {
        f"{number}-{limit}": None if limit == 4 else f"{number}-4.0"
        for number in range(3)
        for limit in (4.0, 2.0)
    }


def test_a_goal_joins_only_a_node_of_its_task() -> None:
    cats, dogs = (TaskConfig(classes=(name, "frog")) for name in ("cat", "dog"))
    plan, _ = insert_goals(BARE, {}, [Goal("cats", 2, PackageSpec({"flops": 4.0}, task=cats))])
    more = [
        Goal(f"more-{task.classes[0]}", 2, PackageSpec({"flops": 4.0}, task=task)) for task in (cats, dogs)
    ]
    grown, _ = insert_goals(plan, {0: at(0.9)}, more)
    assert [(node.goals, node.task, node.parent) for node in grown.nodes] == [
        (("cats", "more-cat"), cats, None),
        (("more-dog",), dogs, None),
    ]
