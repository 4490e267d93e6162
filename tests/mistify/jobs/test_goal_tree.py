"""The order of budgets and the goal tree, compared with a brute-force definition over all pairs."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.jobs import dominance
from mistify.jobs.goal_tree import GoalTree

AXES = ["flops", "params", "memory_bytes"]

# Few distinct limits, so that ties, duplicates and equal products (2 * 8 = 4 * 4) are common.
LIMITS = st.sampled_from([1.0, 2.0, 3.0, 4.0, 8.0, 12.5e6, math.inf])
TABLES = st.integers(1, 4).flatmap(
    lambda axes: st.lists(st.lists(LIMITS, min_size=axes, max_size=axes), min_size=1, max_size=24)
)
BUDGETS = st.lists(st.dictionaries(st.sampled_from(AXES), LIMITS), max_size=16)


def is_looser(a, b):
    return all(x >= y for x, y in zip(a, b, strict=True)) and any(x > y for x, y in zip(a, b, strict=True))


def reference_parents(table):
    """Map each budget to that of its nearest looser goal by comparing all pairs."""
    distinct = list(dict.fromkeys(map(tuple, table)))
    largest = [
        max((limit for limit in column if math.isfinite(limit)), default=1.0)
        for column in zip(*distinct, strict=True)
    ]

    def log_ratio(a, b):
        def finite(budget):
            return [
                stand_in if math.isinf(limit) else limit
                for limit, stand_in in zip(budget, largest, strict=True)
            ]

        return sum(math.log(x / y) for x, y in zip(finite(a), finite(b), strict=True))

    parents = {}
    for child in distinct:
        looser = [other for other in distinct if is_looser(other, child)]
        parents[child] = min(
            looser,
            key=lambda other, child=child: (round(log_ratio(other, child), 8), distinct.index(other)),
            default=None,
        )
    return parents


def tree_parents(tree, table):
    budget_of = {tree.node_of(goal): tuple(budget) for goal, budget in enumerate(table)}
    return {budget: budget_of.get(tree.parent(node)) for node, budget in budget_of.items()}


def links(tree):
    return [tree.parent(node) for node in range(len(tree))]


@given(TABLES)
def test_parent_is_the_nearest_looser_goal(table):
    tree = GoalTree.build(np.array(table))

    assert tree_parents(tree, table) == reference_parents(table)


@given(TABLES)
def test_the_division_into_boxes_does_not_change_the_result(table):
    """Boxes and blocks only speed up the search."""
    limits = np.array(list(dict.fromkeys(map(tuple, table)))).T
    sums = dominance.log_sums(limits, np.full(len(limits), 1e9))
    whole = dominance.nearest_looser(limits, sums)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dominance, "_FEW_QUERIES", 1)
        patch.setattr(dominance, "_BLOCK", 2)

        assert dominance.nearest_looser(limits, sums).tolist() == whole.tolist()


@pytest.mark.parametrize("axes", [1, 2, 4, 6])
def test_thousands_of_goals_match_the_brute_force_result(axes):
    rng = np.random.default_rng(axes)
    table = rng.integers(1, 40, (2500, axes)).astype(float)
    table[rng.random(table.shape) < 0.1] = math.inf
    tree = GoalTree.build(table)
    distinct = table[
        [[tree.node_of(goal) for goal in range(len(table))].index(node) for node in range(len(tree))]
    ]
    finite = np.where(np.isinf(distinct), np.where(np.isinf(table), 0, table).max(axis=0), distinct)
    sums = np.round(np.log(finite).sum(axis=1), 9)

    for node, budget in enumerate(distinct):
        looser = np.flatnonzero((distinct >= budget).all(axis=1) & (distinct > budget).any(axis=1))
        expected = looser[np.lexsort((looser, sums[looser]))[0]] if looser.size else None
        assert tree.parent(node) == expected


@given(TABLES)
def test_the_tree_is_a_strict_order_that_implies_tightness(table):
    """ "Below" in the tree is irreflexive, antisymmetric and transitive, and implies "tighter"."""
    tree = GoalTree.build(np.array(table))
    budget_of = {tree.node_of(goal): tuple(budget) for goal, budget in enumerate(table)}

    def ancestors(node):
        actual = []
        while (node := tree.parent(node)) is not None:
            assert node not in actual
            actual.append(node)
        return actual

    for node, budget in budget_of.items():
        assert node not in ancestors(node)
        for above in ancestors(node):
            assert is_looser(budget_of[above], budget)
            assert set(ancestors(above)) < set(ancestors(node))


@given(TABLES, st.data())
def test_inserting_equals_building(table, data):
    start = data.draw(st.integers(0, len(table)))
    tree = GoalTree.build(np.array(table[:start]).reshape(start, len(table[0])))
    for goal, budget in enumerate(table[start:], start):
        assert tree.insert(budget) == tree.node_of(goal)
    built = GoalTree.build(np.array(table))

    assert links(tree) == links(built)
    assert [tree.node_of(goal) for goal in range(len(table))] == [
        built.node_of(goal) for goal in range(len(table))
    ]


@given(BUDGETS, BUDGETS)
def test_inserting_goals_with_new_axes_equals_building(first, later):
    tree = GoalTree.build(first)
    for budget in later:
        tree.insert(budget)
    built = GoalTree.build([*first, *later])

    assert tree.axes == built.axes
    assert links(tree) == links(built)


@given(TABLES)
def test_order_and_paths(table):
    tree = GoalTree.build(np.array(table))
    order, paths = tree.order(), tree.paths()

    assert sorted(order) == list(range(len(tree)))
    assert all(
        tree.parent(node) is None or order.index(tree.parent(node)) < order.index(node) for node in order
    )
    assert {node for path in paths for node in path} == set(order)
    assert [path[-1] for path in paths] == [node for node in order if not tree.children(node)]
    for path in paths:
        assert path[0] in tree.roots
        assert all(tree.parent(below) == above for above, below in pairwise(path))


def test_the_tree_matches_figure_4():
    """Two paths fork: only goals that are ordered on both axes follow each other."""
    tree = GoalTree.build([[8, 8], [6, 6], [3, 5], [5, 3], [2, 4], [4, 2], [1, 1]], axes=["mem", "comp"])

    assert tree.roots == [0]
    assert tree.children(1) == [2, 3]
    assert tree.paths() == [[0, 1, 2, 4, 6], [0, 1, 3, 5]]
    assert tree.order() == [0, 1, 2, 4, 6, 3, 5]


def test_ties_go_to_the_first_goal():
    assert GoalTree.build([[4, 4], [2, 8], [2, 4]]).parent(2) == 0
    assert GoalTree.build([[2, 8], [4, 4], [2, 4]]).parent(2) == 0


def test_equal_budgets_share_a_node():
    tree = GoalTree.build([{"flops": 4.0}, {"params": 2.0}, {"flops": 4.0, "params": math.inf}])

    assert [tree.node_of(goal) for goal in range(3)] == [0, 1, 0]
    assert tree.insert({"params": 2.0}) == tree.node_of(3) == 1


def test_goals_on_different_axes_are_not_ordered():
    tree = GoalTree.build([{"flops": 4.0}, {"params": 2.0}, {"flops": 3.0, "params": 2.0}])

    assert tree.roots == [0, 1]
    assert tree.parent(2) in (0, 1)


def test_insertion_between_two_goals_moves_the_lower_one():
    tree = GoalTree.build([[8.0], [2.0]])
    node = tree.insert([4.0])

    assert tree.paths() == [[0, node, 1]]


def test_a_goal_without_limits_is_the_loosest():
    tree = GoalTree.build([{"flops": 4.0}, {}])

    assert tree.paths() == [[1, 0]]


def test_goals_are_inserted_into_an_empty_tree():
    tree = GoalTree.build([])
    assert (tree.paths(), tree.order(), tree.roots, len(tree)) == ([], [], [], 0)
    tree.insert({"flops": 4.0})
    tree.insert({"params": 4.0, "flops": 2.0})

    assert tree.paths() == [[0, 1]]


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan])
def test_impossible_limits_are_refused(limit):
    tree = GoalTree.build([{"flops": 1.0}])
    for attempt in (lambda: GoalTree.build([[limit]]), lambda: tree.insert({"params": limit})):
        with pytest.raises(ValueError, match="above 0"):
            attempt()
    assert tree.axes == ("flops",)


def test_wrong_shapes_and_axes_are_refused():
    with pytest.raises(ValueError, match="shape"):
        GoalTree.build([[1.0, 2.0]], axes=["flops"])
    with pytest.raises(ValueError, match="shape"):
        GoalTree.build([[1.0, 2.0]]).insert([1.0])
    with pytest.raises(ValueError, match="params"):
        GoalTree.build([{"params": 1.0}], axes=["flops"])
    with pytest.raises(IndexError, match="node 1"):
        GoalTree.build([[1.0]]).parent(1)
