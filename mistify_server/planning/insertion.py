"""Insertion of goals into the tree of a batch, at submission and later (paper 4.3, streaming)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mistify.config.algorithm import AUTO
from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import OVERALL, Scores, reached, strictest
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.task import TaskConfig
from mistify.costs.budget import hardware_of
from mistify.jobs.goal_tree import GoalTree
from mistify.jobs.job import Goal
from mistify_server.store.plans import BatchPlan, BatchState, NodePlan
from mistify_server.tasks.recipe import derived_seed

T = TypeVar("T")


@dataclass(frozen=True)
class NodeOffer:
    """The scores and precisions that a node's checkpoint has or will have.

    Attributes:
        scores: Scores of the checkpoint, or its targets until it exists.
        quantizations: Precisions of its goals' packages, at which a limited latency was measured.
    """

    scores: Scores
    quantizations: tuple[QuantizationConfig, ...]

    def serves(self, goal: Goal) -> bool:
        """Return whether the checkpoint is good enough for a goal with the node's budget."""
        if not reached(goal.spec.targets, self.scores):
            return False
        # Limits on other axes do not depend on the measurement: the axis itself names the precision.
        return goal.spec.quantization in self.quantizations or not any(map(hardware_of, goal.spec.budget))


def node_offers(state: BatchState, goals: Iterable[Goal]) -> dict[int, NodeOffer]:
    """Return the offers of the nodes that have or will have a checkpoint, by index.

    Nodes that failed or were cancelled before they had a checkpoint are omitted.
    """
    by_id = {goal.id: goal for goal in goals}
    open_goals = {goal.id for goal in by_id.values() if not goal.state.ended}
    scores = {
        node.index: _aimed_at(node, state.plan.recipe.data.metric)
        for node in state.plan.nodes
        if not open_goals.isdisjoint(node.goals)
    } | {index: result.scores for index, result in state.checkpoints.items()}
    quantizations = {goal_id: goal.spec.quantization for goal_id, goal in by_id.items()}
    return {
        node.index: NodeOffer(scores[node.index], tuple(quantizations[goal_id] for goal_id in node.goals))
        for node in state.plan.nodes
        if node.index in scores
    }


def _aimed_at(node: NodePlan, metric: Metric) -> Scores:
    """Return the scores of a network that just reaches the targets of a node."""
    overall = next((target.value for target in node.targets if target.output == OVERALL), metric.worst)
    outputs = (
        OutputScore(target.output, target.metric, target.value)
        for target in node.targets
        if target.output != OVERALL
    )
    return Scores(overall, tuple(outputs))


def insert_goals(
    plan: BatchPlan, offers: Mapping[int, NodeOffer], goals: Sequence[Goal]
) -> tuple[BatchPlan, list[Goal]]:
    """Insert goals into the tree of a batch.

    The parent of a new node is its nearest looser node, as in `GoalTree`, among the new nodes and those that
    have or will have a checkpoint. Without one, its parent is the root. The root is not widened again: it
    meets any goal with limits above its own costs. Existing nodes keep their parents, because they are
    finished or in progress.

    Only goals of the same task are compared; their networks descend from each other and from the root.

    A goal with the same budget as such a node joins it, with two exceptions: it requires more accuracy than
    the node's checkpoint has or aims at, or its latency is limited and none of the node's goals is packaged
    in the same way. It then gets a separate node that starts from the most accurate checkpoint of that
    budget.

    With the algorithm `auto`, new nodes have no algorithm yet.

    Args:
        offers: The result of `node_offers`.
        goals: The new goals, with new ids and without parents.

    Returns:
        The plan with the new nodes after the existing ones, and the goals with their parents.
    """
    if not plan.nodes and len(goals) == 1:  # as in most submissions
        return plan.model_copy(update={"nodes": (_new_node(plan, 0, None, goals),)}), [*goals]
    nodes = {node.index: node for node in plan.nodes}
    for task in dict.fromkeys(goal.spec.task for goal in goals):
        insertion = _Insertion(plan, offers, [goal for goal in goals if goal.spec.task == task], task)
        joining, founding = insertion.place_goals()
        nodes |= {index: _with_goals(nodes[index], joined) for index, joined in joining.items()}
        nodes |= insertion.new_nodes(founding, first_index=max(nodes, default=-1) + 1)
    first_goal_of_parent = {
        goal_id: None if node.parent is None else nodes[node.parent].goals[0]
        for node in nodes.values()
        for goal_id in node.goals
    }
    grown = plan.model_copy(update={"nodes": tuple(nodes.values())})
    return grown, [replace(goal, parent=first_goal_of_parent[goal.id]) for goal in goals]


class _Insertion:
    """A goal tree of one task: the new goals, and the nodes that have or will have a checkpoint.

    A place is a node of the `GoalTree`, that is, one budget. Several nodes of the plan can share a budget.
    """

    def __init__(
        self,
        plan: BatchPlan,
        offers: Mapping[int, NodeOffer],
        goals: Sequence[Goal],
        task: TaskConfig | None,
    ) -> None:
        offering = (node for node in plan.nodes if node.index in offers and node.task == task)
        known = sorted(offering, key=lambda node: node.index)
        self._plan = plan
        self._offers = offers
        self._tree = GoalTree.build([*(node.budget for node in known), *(goal.spec.budget for goal in goals)])
        self._nodes_at = _by_place(self._tree, known, 0)
        self._goals_at = _by_place(self._tree, goals, len(known))

    def place_goals(self) -> tuple[dict[int, list[Goal]], dict[int, list[Goal]]]:
        """Return the goals that join existing nodes, by index, and those that need new nodes, by place."""
        joining: dict[int, list[Goal]] = {}
        founding: dict[int, list[Goal]] = {}
        for place, goals in self._goals_at.items():
            for goal in goals:
                node = self._serving_node(place, goal)
                if node is None:
                    founding.setdefault(place, []).append(goal)
                else:
                    joining.setdefault(node, []).append(goal)
        return joining, founding

    def new_nodes(self, founding: Mapping[int, Sequence[Goal]], first_index: int) -> dict[int, NodePlan]:
        """Return the new nodes by index, parents first.

        Args:
            founding: Place -> the goals of a new node.
            first_index: Index of the first one.
        """
        index_of = {place: index for index, place in enumerate(sorted(founding), first_index)}
        return {
            index_of[place]: _new_node(
                self._plan, index_of[place], self._parent_of(place, index_of), founding[place]
            )
            for place in self._tree.order()
            if place in founding
        }

    def _serving_node(self, place: int, goal: Goal) -> int | None:
        """Return the index of the first node with a goal's budget that serves it."""
        nodes = self._nodes_at.get(place, ())
        return next((node.index for node in nodes if self._offers[node.index].serves(goal)), None)

    def _parent_of(self, place: int, index_of: Mapping[int, int]) -> int | None:
        """Return the index of a new node's parent, None for the root.

        Args:
            place: The place of the new node.
            index_of: Place -> index, for all new nodes.
        """
        if place in self._nodes_at:
            accuracy_of = {
                node.index: self._offers[node.index].scores.overall for node in self._nodes_at[place]
            }
            best = self._plan.recipe.data.metric.best(accuracy_of.values())
            return next(index for index, accuracy in accuracy_of.items() if accuracy == best)
        above = self._tree.parent(place)
        if above is None:
            return None
        return self._nodes_at[above][0].index if above in self._nodes_at else index_of[above]


def _by_place(tree: GoalTree, items: Sequence[T], first: int) -> dict[int, list[T]]:
    """Return items by their places in a tree that was built with the first item at position `first`."""
    items_at: dict[int, list[T]] = {}
    for position, item in enumerate(items, first):
        items_at.setdefault(tree.node_of(position), []).append(item)
    return items_at


def _with_goals(node: NodePlan, goals: Sequence[Goal]) -> NodePlan:
    return node.model_copy(update={"goals": node.goals + tuple(goal.id for goal in goals)})


def _new_node(plan: BatchPlan, index: int, parent: int | None, goals: Sequence[Goal]) -> NodePlan:
    named = plan.adaptable and plan.recipe.algorithm != AUTO
    return NodePlan(
        index=index,
        parent=parent,
        budget=dict(goals[0].spec.budget),
        targets=strictest(*(goal.spec.targets for goal in goals)),
        seed=derived_seed(plan.recipe.settings, index),
        goals=tuple(goal.id for goal in goals),
        algorithm=plan.recipe.algorithm if named else "",
        choice="the config names it" if named else "",
        task=goals[0].spec.task,
    )
