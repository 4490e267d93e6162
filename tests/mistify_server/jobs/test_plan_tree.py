"""The order in which the edges of a goal tree are adapted."""

import numpy as np
import pytest

from mistify_server.jobs.plan_tree import PlanTree
from mistify_server.store.plans import BatchPlan, NodePlan


def tree(plan: BatchPlan, parents: list[int | None]) -> PlanTree:
    """Return the tree in which each node has the parent in the list."""
    nodes = tuple(
        NodePlan(index=index, parent=parent, budget={"flops": 1.0}, targets=(), seed=1, goals=(str(index),))
        for index, parent in enumerate(parents)
    )
    return PlanTree(plan.model_copy(update={"nodes": nodes}))


def longest(parents: list[int | None], index: int) -> int:
    """Return the number of nodes on the longest path that begins at a node."""
    children = [child for child, parent in enumerate(parents) if parent == index]
    return 1 + max((longest(parents, child) for child in children), default=0)


def test_a_node_above_a_long_path_comes_before_earlier_nodes(plan: BatchPlan) -> None:
    ranks = tree(plan, [None, None, None, 2, 3, 1]).rank
    assert sorted(ranks, key=ranks.__getitem__) == [2, 1, 3, 0, 4, 5]


@pytest.mark.parametrize("seed", range(5))
def test_parents_come_before_children_and_long_paths_before_short_ones(plan: BatchPlan, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parents = [None, *(None if rng.random() < 0.2 else int(rng.integers(index)) for index in range(1, 60))]
    ranks = tree(plan, parents).rank
    assert sorted(ranks.values()) == list(range(60))
    assert all(ranks[parent] < ranks[index] for index, parent in enumerate(parents) if parent is not None)
    in_order = sorted(ranks, key=ranks.__getitem__)
    lengths = [longest(parents, index) for index in in_order]
    assert lengths == sorted(lengths, reverse=True)
