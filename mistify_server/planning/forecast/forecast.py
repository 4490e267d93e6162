"""Forecast of a goal tree: the algorithm of each edge, its accuracy, its time."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np

from mistify.config.metric import Metric
from mistify.config.targets import OVERALL
from mistify.costs.axes import plugged_in_formats
from mistify.costs.budget import FLOPS, Costs, hardware_of
from mistify.jobs.job import Goal
from mistify.jobs.plan import Estimate, OutputEstimate, PlannedBatch, PlannedEdge
from mistify_server.planning.forecast.choice import Chooser, Edge
from mistify_server.planning.forecast.experience import Experience
from mistify_server.planning.forecast.records import subject_of
from mistify_server.planning.forecast.scaling import CostScaling, distance
from mistify_server.planning.forecast.targets import expected_to_reach, warning
from mistify_server.store.edges import EdgeRecord
from mistify_server.store.jobs import JobStore
from mistify_server.store.plans import BatchPlan, NodePlan
from mistify_server.tasks.estimates import EdgeEstimates

#: The share of its error that tuning gains a source of which nothing else is known.
_GAIN: Final = Estimate(0.15, 0.15)

#: How much the same source differs when it is tuned again, as a share of its accuracy.
_REPETITION: Final = 0.005

#: Numbers of tuning rounds that are tried: from one to the most, evenly spread by their logarithms.
_ROUNDS: Final = 100

#: The most edges that a forecast learns from.
_RECORDS: Final = 300

#: Seconds to start a worker and to package a goal, as measured for small networks.
_STARTING: Final = 5.0
_PACKAGING: Final = 1.0


class Forecast:
    """Predicts the edges of a batch.

    Args:
        plan: Of the batch, whose model can be adapted.
        estimates: Of its inspection.
        records: Of edges like its own, the oldest first.
        prepared: See `Chooser`.

    Attributes:
        plan: With an algorithm for every node; nodes that had one keep it.
    """

    def __init__(
        self,
        plan: BatchPlan,
        estimates: EdgeEstimates,
        records: Sequence[EdgeRecord],
        prepared: Collection[str] | None = None,
    ) -> None:
        self.plan = plan
        self._estimates = estimates
        self._subject = subject_of(estimates.traits, plan.data)
        self._experience = Experience(records, estimates.candidates)
        self._chooser = Chooser(estimates.traits, self._subject, estimates.candidates, self._experience)
        self._scaling = CostScaling(estimates.scaled, plan.source_costs)
        self.plan = plan.model_copy(update={"nodes": self._chosen(prepared)})

    def warning(self, node: NodePlan) -> str:
        """Describe the targets that a node is likely to miss; empty if it is likely to meet them."""
        if not node.targets:
            return ""
        steps, expected = self._reached(node)
        return warning(node.targets, expected, steps)

    def planned(self, goals: Mapping[str, Goal], slots: int) -> PlannedBatch:
        """Return the expected course of the batch.

        Args:
            goals: Of the batch, by id.
            slots: How many edges are adapted at the same time.
        """
        plan = self.plan
        edges = {node.index: self._planned(node, goals) for node in plan.nodes}
        ends: dict[int | None, float] = {None: 0.0}
        for node in plan.nodes:
            ends[node.index] = ends[node.parent] + edges[node.index].seconds
        whole = sum(edge.seconds for edge in edges.values())
        return PlannedBatch(
            model=plan.model_name,
            metric=plan.data.metric,
            source_costs=plan.source_costs,
            source_accuracy=self._source,
            source_outputs=self._source_outputs,
            source_steps=self._estimates.source_steps,
            source_seconds=self._source_seconds,
            edges=tuple(edges.values()),
            seconds=self._source_seconds + max(*ends.values(), whole / slots),
            evidence=self._experience.evidence(self._subject, self._estimates.traits.kind),
            formats=plugged_in_formats(plan.source_costs),
        )

    def _chosen(self, prepared: Collection[str] | None) -> tuple[NodePlan, ...]:
        """Return the nodes, each with an algorithm and what it is expected to lose."""
        open_nodes = [node for node in self.plan.nodes if not node.algorithm]
        if not open_nodes:
            return self.plan.nodes
        edges = [self._edge(node) for node in open_nodes]
        choices = self._chooser(edges, prepared)
        chosen = {
            node.index: node.model_copy(
                update={"algorithm": choice.algorithm, "choice": choice.reason, "foreseen": choice.lost}
            )
            for node, choice in zip(open_nodes, choices, strict=True)
        }
        return tuple(chosen.get(node.index, node) for node in self.plan.nodes)

    @cached_property
    def _scales(self) -> dict[int | None, float]:
        """The scale of the root (None) and of each node's network."""
        exceed = self.plan.exceed
        scales: dict[int | None, float] = {
            None: self._scaling.exceeding(exceed) if exceed else self._scaling.whole
        }
        for node in self.plan.nodes:
            scales[node.index] = min(scales[node.parent], self._scaling.within(node.budget))
        return scales

    def _edge(self, node: NodePlan) -> Edge:
        parent, costs = self._costs(node.parent), self._costs(node.index)
        return Edge(
            halvings=self._scaling.halvings(costs),
            distance=distance(parent, node.budget),
            share=parent[FLOPS] / self.plan.source_costs[FLOPS],
            limits_latency=any(map(hardware_of, node.budget)),
        )

    def _costs(self, index: int | None) -> Costs:
        return self._scaling.costs(self._scales[index])

    @cached_property
    def _source(self) -> Estimate | None:
        """The accuracy of the tuned source; None where it was measured neither now nor before."""
        known = self._experience.source(self._subject, self._estimates.source_steps)
        if known is not None:
            return Estimate(known, _REPETITION * known)
        accuracy = self._estimates.accuracy
        if accuracy is None:
            return None
        return self._tuned(self.plan.data.metric, accuracy)

    @cached_property
    def _source_outputs(self) -> tuple[OutputEstimate, ...]:
        """The scores of the tuned source's outputs; empty where they were not measured."""
        return tuple(
            OutputEstimate(score.output, score.metric, self._tuned(score.metric, score.value))
            for score in self._estimates.output_scores
        )

    def _tuned(self, metric: Metric, figure: float) -> Estimate:
        """Return what a figure of the source becomes by tuning."""
        error = 1 - figure if metric.is_share else -figure
        gain = _GAIN if self._estimates.source_steps else Estimate(0.0, _REPETITION)
        return Estimate(figure + gain.mean * error, gain.deviation * abs(error) + _REPETITION * figure)

    @property
    def _step_seconds(self) -> float:
        """Seconds of a training step of the source: as just measured, or else as in earlier jobs."""
        return self._estimates.step_seconds or self._experience.step_seconds(self._subject) or 0.0

    @property
    def _source_seconds(self) -> float:
        used = {node.algorithm for node in self.plan.nodes}
        preparing = sum(self._estimates.candidates[name].preparing for name in used)
        steps = self._estimates.source_steps + self._estimates.generating + preparing
        return _STARTING + steps * self._step_seconds

    def _planned(self, node: NodePlan, goals: Mapping[str, Goal]) -> PlannedEdge:
        steps, expected = self._reached(node)
        case = self._chooser.case(self._edge(node), node.algorithm)
        work = case.work * steps / max(case.steps, 1) + self._experience.overhead(node.algorithm)
        adapting = work * self._step_seconds
        own = [goals[goal_id] for goal_id in node.goals]
        return PlannedEdge(
            goals=node.goals,
            parent=own[0].parent,
            budget=node.budget,
            algorithm=node.algorithm,
            choice=node.choice,
            costs=self._costs(node.index),
            accuracy=expected[0].estimate if expected else None,
            outputs=expected[1:],
            targets=node.targets,
            steps=steps,
            seconds=adapting + sum(_PACKAGING + (_networks(goal) - 1) * adapting for goal in own),
            warning=warning(node.targets, expected, steps),
            precisions=_precisions(own),
        )

    def _reached(self, node: NodePlan) -> tuple[int, tuple[OutputEstimate, ...]]:
        """Return the steps of an edge and its scores, tuned until the targets are met if they can be.

        The first score is by the metric of the batch; none is known where the source's is not. What an output
        loses is not known apart: it is expected to lose the same share of its own score.
        """
        edge, source = self._edge(node), self._source
        if source is None:
            return self._chooser.case(edge, node.algorithm).steps, ()
        scores = (OutputEstimate(OVERALL, self.plan.data.metric, source), *self._source_outputs)
        most_rounds = 1
        if node.targets:
            most_rounds = self._estimates.candidates[node.algorithm].rounds(edge.distance)
        rounds = np.unique(np.geomspace(1, most_rounds, _ROUNDS).round().astype(int))
        cases = [self._chooser.case(edge, node.algorithm, int(number)) for number in rounds]
        expected = [
            tuple(replace(one, estimate=after_losing(one.metric, one.estimate, lost)) for one in scores)
            for lost in self._experience.lost(cases)
        ]
        reached = [expected_to_reach(node.targets, estimates) for estimates in expected]
        first = reached.index(True) if any(reached) else -1
        return cases[first].steps, expected[first]


def forecast_of(
    plan: BatchPlan, history: JobStore, prepared: Collection[str] | None = None
) -> Forecast | None:
    """Return the forecast of a batch; None where its model is packaged unchanged.

    Args:
        plan: Of the batch.
        history: Of all jobs.
        prepared: See `Chooser`.
    """
    estimates = plan.estimates
    if estimates is None:
        return None
    subject = subject_of(estimates.traits, plan.data)
    return Forecast(plan, estimates, history.edges(subject, estimates.traits.kind, _RECORDS), prepared)


def with_forecast(goals: Iterable[Goal], forecast: Forecast) -> list[Goal]:
    """Return goals with the algorithms of their nodes and with warnings."""
    node_of = {goal_id: node for node in forecast.plan.nodes for goal_id in node.goals}
    return [
        replace(
            goal,
            algorithm=node_of[goal.id].algorithm,
            choice=node_of[goal.id].choice,
            warning=forecast.warning(node_of[goal.id]) if goal.targets else "",
        )
        for goal in goals
    ]


def plan_unchanged(plan: BatchPlan, goals: Mapping[str, Goal]) -> PlannedBatch:
    """Return the expected course of a batch whose model is packaged unchanged."""
    edges = tuple(
        PlannedEdge(
            goals=node.goals,
            parent=goals[node.goals[0]].parent,
            budget=node.budget,
            algorithm="",
            choice="",
            costs=plan.source_costs,
            accuracy=None,
            targets=node.targets,
            steps=0,
            seconds=_PACKAGING * len(node.goals),
            precisions=_precisions(goals[goal_id] for goal_id in node.goals),
        )
        for node in plan.nodes
    )
    seconds = _STARTING + sum(edge.seconds for edge in edges)
    return PlannedBatch(
        plan.model_name,
        plan.data.metric,
        plan.source_costs,
        None,
        0,
        _STARTING,
        edges,
        seconds,
        "nothing to adapt",
    )


def after_losing(metric: Metric, source: Estimate, lost: Estimate) -> Estimate:
    """Return the accuracy left when a share of the source's is lost; errors are propagated to first order."""
    mean = metric.after(source.mean, lost.mean)
    if metric.is_share:
        by_source, by_loss = 1 - lost.mean, source.mean
    else:  # an error is divided by what is kept
        kept = max(1 - lost.mean, 1e-6)
        by_source, by_loss = 1 / kept, source.mean / kept**2
    return Estimate(mean, math.hypot(by_source * source.deviation, by_loss * lost.deviation))


def _precisions(goals: Iterable[Goal]) -> dict[str, str]:
    """Return why the server chose the precisions of goals, without those whose configs name one."""
    return {goal.id: goal.precision_choice for goal in goals if goal.precision_choice}


def _networks(goal: Goal) -> int:
    """Return how many networks are adapted for a goal's package."""
    return goal.branches.count if goal.branches else 1
