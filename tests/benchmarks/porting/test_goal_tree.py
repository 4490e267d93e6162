"""Both sides of the goal tree's benchmark find the same parents."""

import numpy as np
import pytest

pytest.importorskip("networkx", reason="needs the extra: pip install -e '.[bench]'")
pytest.importorskip("matplotlib", reason="needs the extra: pip install -e '.[bench]'")

from benchmarks.porting.goal_tree import KINDS, all_pairs, networkx_parents, tree_parents
from mistify.jobs.goal_tree import GoalTree


@pytest.mark.parametrize("parents", [all_pairs, networkx_parents])
def test_parents_of_a_small_example_are_found(parents):
    goals = np.array([[8.0, 8.0], [2.0, 2.0], [4.0, 4.0], [1.0, 16.0], [1.0, 2.0], [np.inf, 1.0]])

    assert parents(goals).tolist() == [-1, 2, 0, -1, 1, -1]


@pytest.mark.parametrize("kind", KINDS)
def test_both_sides_agree(kind):
    goals = kind(100, np.random.default_rng(0))
    expected = tree_parents(GoalTree.build(goals)).tolist()

    assert all_pairs(goals).tolist() == expected
    assert networkx_parents(goals).tolist() == expected
