"""Inserting goals into the tree of a batch, at submission and later (paper 4.3, streaming)."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from mistify.config import AUTO
from mistify.goals import GoalTree
from mistify.jobs import Goal
from mistify_server.store.base import BatchPlan, BatchState, NodePlan

T = TypeVar("T")


def promised_accuracies(state: BatchState, goals: Iterable[Goal]) -> dict[int, float]:
    """Which nodes have a checkpoint or will have one: index -> the accuracy that it has, or aims at.

    Nodes that failed, or were cancelled before they had a checkpoint, never get one and are left out.

    Args:
        state: of a batch.
        goals: of its job, as they stand.
    """
    metric = state.plan.data.metric
    open_goals = {goal.id for goal in goals if not goal.state.ended}
    promised = {
        node.index: metric.worst if node.accuracy_target is None else node.accuracy_target
        for node in state.plan.nodes
        if not open_goals.isdisjoint(node.goals)
    }
    return promised | {index: made.accuracy for index, made in state.checkpoints.items()}


def insert_goals(
    plan: BatchPlan, promised: Mapping[int, float], goals: Sequence[Goal]
) -> tuple[BatchPlan, list[Goal]]:
    """Grow the tree of a batch.

    The parent of a new node is its nearest looser node, as `GoalTree` has it, among the new ones and those
    that have or will have a checkpoint; without one it is adapted from the root as that is, which already
    serves a goal above the root's own costs. Nodes that exist keep their parents: they are made, or under
    way. So does the root: it is not widened again.

    A goal with the budget of such a node joins it, unless it asks for more accuracy than the node's
    checkpoint has (or aims at, while it is still to be made). Then it gets a node of its own, which is
    tuned on from the most accurate checkpoint of that budget.

    With the algorithm `auto` new nodes have none yet.

    Args:
        plan: of the batch.
        promised: see `promised_accuracies`.
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
            host = _host(goal, peers.get(place, ()), promised)
            if host is None:
                founding.setdefault(place, []).append(goal)
            else:
                joining.setdefault(host, []).append(goal)
    nodes = {node.index: _joined(node, joining.get(node.index, ())) for node in plan.nodes}
    first_index = max(nodes, default=-1) + 1
    index_of = {place: index for index, place in enumerate(sorted(founding), first_index)}

    def parent_of(place: int) -> int | None:
        if place in peers:
            best = plan.data.metric.best(promised[node.index] for node in peers[place])
            return next(node.index for node in peers[place] if promised[node.index] == best)
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


def _host(goal: Goal, peers: Iterable[NodePlan], promised: Mapping[int, float]) -> int | None:
    """The first node of a goal's own budget that is accurate enough for it."""
    target = goal.accuracy_target
    return next((node.index for node in peers if goal.metric.reaches(promised[node.index], target)), None)


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
