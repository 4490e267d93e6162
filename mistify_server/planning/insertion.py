"""Inserting goals into the tree of a batch, at submission and later (paper 4.3, streaming)."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mistify.config.porting import AUTO
from mistify.config.quantization import QuantizationConfig
from mistify.costs.budget import hardware_of
from mistify.jobs.goal_tree import GoalTree
from mistify.jobs.job import Goal
from mistify_server.store.plans import BatchPlan, BatchState, NodePlan

T = TypeVar("T")


@dataclass(frozen=True)
class Promise:
    """What can be expected of a node's checkpoint.

    Attributes:
        accuracy: That it has, or aims at while it is still to be made.
        quantizations: What its goals are packaged as: where its latency is limited, it was measured so.
    """

    accuracy: float
    quantizations: tuple[QuantizationConfig, ...]

    def serves(self, goal: Goal) -> bool:
        """Whether the checkpoint will do for a goal of the node's budget."""
        if not goal.metric.reaches(self.accuracy, goal.accuracy_target):
            return False
        # Other axes name the precision that they count at.
        return goal.quantization in self.quantizations or not any(map(hardware_of, goal.budget))


def promises(state: BatchState, goals: Iterable[Goal]) -> dict[int, Promise]:
    """Which nodes have a checkpoint or will have one: index -> what can be expected of it.

    Nodes that failed, or were cancelled before they had a checkpoint, never get one and are left out.

    Args:
        state: of a batch.
        goals: of its job, as they stand.
    """
    metric = state.plan.data.metric
    by_id = {goal.id: goal for goal in goals}
    open_goals = {goal.id for goal in by_id.values() if not goal.state.ended}
    accuracies = {
        node.index: metric.worst if node.accuracy_target is None else node.accuracy_target
        for node in state.plan.nodes
        if not open_goals.isdisjoint(node.goals)
    } | {index: made.accuracy for index, made in state.checkpoints.items()}
    return {
        node.index: Promise(
            accuracies[node.index], tuple(by_id[goal_id].quantization for goal_id in node.goals)
        )
        for node in state.plan.nodes
        if node.index in accuracies
    }


def insert_goals(
    plan: BatchPlan, promised: Mapping[int, Promise], goals: Sequence[Goal]
) -> tuple[BatchPlan, list[Goal]]:
    """Grow the tree of a batch.

    The parent of a new node is its nearest looser node, as `GoalTree` has it, among the new ones and those
    that have or will have a checkpoint; without one it is adapted from the root as that is, which already
    serves a goal above the root's own costs. Nodes that exist keep their parents: they are made, or under
    way. So does the root: it is not widened again.

    A goal with the budget of such a node joins it, unless it asks for more accuracy than the node's
    checkpoint has (or aims at, while it is still to be made), or its latency is limited and it is packaged as
    none of the node's goals is. Then it gets a node of its own, which goes on from the most accurate
    checkpoint of that budget.

    With the algorithm `auto` new nodes have none yet.

    Args:
        plan: of the batch.
        promised: see `promises`.
        goals: what is asked for, without parents; their ids are new.

    Returns:
        The plan with the new nodes behind the old ones, and the goals with their parents.
    """
    known = sorted((node for node in plan.nodes if node.index in promised), key=lambda node: node.index)
    tree = GoalTree.build([*(node.budget for node in known), *(goal.budget for goal in goals)])
    peers = _by_place(tree, known, 0)
    joining: dict[int, list[Goal]] = {}
    founding: dict[int, list[Goal]] = {}
    for place, asked in _by_place(tree, goals, len(known)).items():
        for goal in asked:
            serving = (node.index for node in peers.get(place, ()) if promised[node.index].serves(goal))
            host = next(serving, None)
            if host is None:
                founding.setdefault(place, []).append(goal)
            else:
                joining.setdefault(host, []).append(goal)
    nodes = {node.index: _joined(node, joining.get(node.index, ())) for node in plan.nodes}
    first_index = max(nodes, default=-1) + 1
    index_of = {place: index for index, place in enumerate(sorted(founding), first_index)}

    def parent_of(place: int) -> int | None:
        if place in peers:
            best = plan.data.metric.best(promised[node.index].accuracy for node in peers[place])
            return next(node.index for node in peers[place] if promised[node.index].accuracy == best)
        above = tree.parent(place)
        if above is None:
            return None
        return peers[above][0].index if above in peers else index_of[above]

    for place in tree.order():
        if place in founding:
            index = index_of[place]
            nodes[index] = _founded(plan, index, parent_of(place), founding[place])
    first_goal_of_parent = {
        goal_id: None if node.parent is None else nodes[node.parent].goals[0]
        for node in nodes.values()
        for goal_id in node.goals
    }
    grown = plan.model_copy(update={"nodes": tuple(nodes.values())})
    return grown, [replace(goal, parent=first_goal_of_parent[goal.id]) for goal in goals]


def derived_seed(settings: Mapping[str, object], node: int) -> int:
    """The seed of a node, from the `seed` of the algorithm's settings (0 where there is none)."""
    digest = hashlib.sha256(f"{settings.get('seed', 0)}/{node}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _by_place(tree: GoalTree, items: Sequence[T], first: int) -> dict[int, list[T]]:
    """Items by their node of a tree in which they follow each other from position `first` on."""
    found: dict[int, list[T]] = {}
    for position, item in enumerate(items, first):
        found.setdefault(tree.node_of(position), []).append(item)
    return found


def _joined(node: NodePlan, goals: Sequence[Goal]) -> NodePlan:
    return node.model_copy(update={"goals": node.goals + tuple(goal.id for goal in goals)})


def _founded(plan: BatchPlan, index: int, parent: int | None, goals: Sequence[Goal]) -> NodePlan:
    targets = [goal.accuracy_target for goal in goals if goal.accuracy_target is not None]
    named = plan.adaptable and plan.algorithm != AUTO
    return NodePlan(
        index=index,
        parent=parent,
        budget=dict(goals[0].budget),
        accuracy_target=plan.data.metric.best(targets) if targets else None,
        seed=derived_seed(plan.algorithm_config, index),
        goals=tuple(goal.id for goal in goals),
        algorithm=plan.algorithm if named else "",
        choice="the config names it" if named else "",
    )
