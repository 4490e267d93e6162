"""Forecast of a goal tree: the algorithm, accuracy and time of each edge."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from math import log2
from typing import Final, NamedTuple

import numpy as np

from mistify.config.data.metric import OutputScore
from mistify.config.data.targets import OVERALL
from mistify.costs.axes import plugged_in_formats
from mistify.costs.budget import FLOPS, Budget, Costs, hardware_of, tightest_ratio
from mistify.costs.quantization import Quantization
from mistify.jobs.job import Goal
from mistify.jobs.plan import (
    Estimate,
    Interval,
    OutputEstimate,
    PlannedBatch,
    PlannedEdge,
    PlannedPreparation,
)
from mistify_server.planning.forecast.accuracy import interval_of, source_forecast_of
from mistify_server.planning.forecast.algorithm_choice import Edge, longest_paths
from mistify_server.planning.forecast.basis import ForecastBases, ForecastBasis
from mistify_server.planning.forecast.batch_time import (
    OVERHEAD_STEPS,
    STARTING_SECONDS,
    STEP_SECONDS,
    batch_seconds,
    packaging_seconds,
)
from mistify_server.planning.forecast.precisions import loss_of, reasons_for_precisions, riskiest
from mistify_server.planning.forecast.preparing import planned_preparations, worthwhile
from mistify_server.planning.forecast.scaling import distance
from mistify_server.planning.forecast.scores import ScoreForecast, figures_after
from mistify_server.planning.forecast.targets import expected_to_reach, unused_inputs, warning
from mistify_server.store.plans import BatchPlan, NodePlan
from mistify_server.tasks.estimates import SourceTrial

#: Maximum halvings of the multiply-adds per halving of the latency: ResNet-8 needs 1.06 and 1.2 for limits of
#: 0.5x and 0.25x, a transformer on SNIPS 1.4 (`benchmarks.porting.limits`). Uniform scaling of all widths may
#: need more, but algorithms prefer the widths for which kernels are fastest.
_HALVINGS_FOR_LATENCY: Final = 1.3

#: How many numbers of tuning rounds to try: from one to the maximum, spaced logarithmically.
_ROUNDS: Final = 100

#: Relative rounding errors of interpolated costs.
_ROUNDING: Final = 1e-6


class _Work(NamedTuple):
    """The expected work on a node, by the names of fields of `NodePlan`."""

    steps: int
    seconds: float
    packaging_seconds: float


class Forecast:
    """Predicts the edges of a batch.

    Args:
        plan: The plan of a batch whose model can be adapted.
        basis: The basis of forecasts for its source.
        prepared: See `Chooser`.
        trial: The trial of tuning the source, if it has just been inspected.

    Attributes:
        plan: The plan with an algorithm for every node, and without preparations that do not pay off. Nodes
            keep an existing algorithm.
    """

    def __init__(
        self,
        plan: BatchPlan,
        basis: ForecastBasis,
        prepared: Collection[str] | None = None,
        trial: SourceTrial | None = None,
    ) -> None:
        self.plan = plan
        self._trial = trial
        self._estimates = estimates = basis.estimates
        self._subject = basis.subject
        self._history = basis.history
        self._chooser = basis.chooser
        self._scaling = basis.scaling
        self._paths = longest_paths(plan.nodes)
        self.plan = plan.model_copy(update={"nodes": self._chosen(prepared)})
        profiles = worthwhile(self.plan, estimates.profiles, self._chooser, self._edge)
        if profiles != estimates.profiles:
            self._estimates = estimates.model_copy(update={"profiles": profiles})
            self.plan = self.plan.model_copy(update={"estimates": self._estimates})

    def warning(self, node: NodePlan, precision: Quantization) -> str:
        """Describe unused data and the targets that a node is likely to miss at a precision; may be empty."""
        steps, expected = self._reached(node, precision) if node.targets else (0, ())
        return self._warning(node, expected, steps)

    def _warning(self, node: NodePlan, expected: Sequence[OutputEstimate], steps: int) -> str:
        missed, recipe = warning(node.targets, expected, steps), self.plan.recipe
        return "; ".join(filter(None, (missed, unused_inputs(recipe.data, recipe.settings))))

    def planned(self, goals: Mapping[str, Goal], slots: int) -> PlannedBatch:
        """Return the batch with its expected costs, accuracies and times.

        Args:
            goals: The batch's goals by id.
            slots: Number of edges that are adapted concurrently.
        """
        plan = self.plan
        edges = {node.index: self._planned(node, goals) for node in plan.nodes}
        seconds = {index: edge.seconds for index, edge in edges.items()}
        source_seconds = STARTING_SECONDS + self._source_seconds
        return PlannedBatch(
            model=plan.model_name,
            metric=plan.recipe.data.validation_metric,
            source_costs=plan.source_costs,
            source_accuracy=self._source and self._interval(self._source),
            source_outputs=tuple(map(self._estimate, self._outputs)),
            present_accuracy=self._estimates.accuracy,
            present_outputs=self._estimates.output_scores,
            source_steps=self._estimates.source_steps,
            source_seconds=source_seconds,
            preparations=self._preparations,
            edges=tuple(edges.values()),
            seconds=batch_seconds(plan, source_seconds, self._preparing_seconds, seconds, slots),
            evidence=self._history.evidence(self._subject, self._estimates.features.kind),
            formats=plugged_in_formats(plan.source_costs),
            flips=self._trial is not None and self._trial.flips,
        )

    def with_work(self, goals: Mapping[str, Goal]) -> BatchPlan:
        """Return the plan with the expected work on the source, the preparations and these goals' nodes.

        A worker has inspected the source, and need not be started.

        Args:
            goals: Goals of the batch by id, such as those to be added.
        """
        nodes = [
            self._with_work(node, [goals[id_] for id_ in node.goals if id_ in goals])
            for node in self.plan.nodes
        ]
        work = {"source_seconds": self._source_seconds, "preparing_seconds": self._preparing_seconds}
        return self.plan.model_copy(update={"nodes": tuple(nodes), **work})

    def _with_work(self, node: NodePlan, goals: Sequence[Goal]) -> NodePlan:
        """Return a node with the expected work for goals; unchanged without goals."""
        if not goals:
            return node
        return node.model_copy(update=self._work(node, goals, self._steps(node, riskiest(goals)))._asdict())

    def _work(self, node: NodePlan, goals: Sequence[Goal], steps: int) -> _Work:
        case = self._chooser.case(self._edge(node), node.algorithm)
        work = case.work * steps / max(case.steps, 1) + self._history.overhead(node.algorithm)
        adapting = work * self._step_seconds
        return _Work(steps, adapting, packaging_seconds(goals, adapting))

    def _chosen(self, prepared: Collection[str] | None) -> tuple[NodePlan, ...]:
        """Return the nodes, each with its algorithm and expected loss.

        Nodes of one task share an algorithm's preparation, so the algorithms are chosen for each task
        separately.
        """
        chosen: dict[int, NodePlan] = {}
        for task in dict.fromkeys(node.task for node in self.plan.nodes):
            own = [node for node in self.plan.nodes if node.task == task]
            chosen |= {node.index: node for node in self._chosen_together(own, prepared)}
        return tuple(chosen[node.index] for node in self.plan.nodes)

    def _chosen_together(
        self, nodes: Sequence[NodePlan], prepared: Collection[str] | None
    ) -> Iterable[NodePlan]:
        """Return the nodes of one task, each with its algorithm and expected loss."""
        of = {name: [node for node in nodes if node.algorithm == name] for name in prepared or ()}
        most = {name: max(self._edge(node).halvings for node in own) for name, own in of.items() if own}
        open_nodes = [node for node in nodes if not node.algorithm]
        if not open_nodes:
            return nodes
        edges = [self._edge(node) for node in open_nodes]
        choices = self._chooser(edges, None if prepared is None else most)
        chosen = {
            node.index: node.model_copy(
                update={"algorithm": choice.algorithm, "choice": choice.reason, "foreseen": choice.lost}
            )
            for node, choice in zip(open_nodes, choices, strict=True)
        }
        return [chosen.get(node.index, node) for node in nodes]

    @cached_property
    def _scales(self) -> dict[int | None, float]:
        """The scale of the root (None) and of each node's network."""
        exceed = self.plan.exceed
        scales: dict[int | None, float] = {
            None: self._scaling.exceeding(exceed) if exceed else self._scaling.whole
        }
        for node in self.plan.nodes:
            scales[node.index] = min(scales[node.parent], self._within(node.budget))
        return scales

    def _within(self, budget: Budget) -> float:
        """Return the scale of a network within limits."""
        source = self.plan.source_costs
        latencies = {axis: limit for axis, limit in budget.items() if hardware_of(axis)}
        others = {axis: limit for axis, limit in budget.items() if axis not in latencies}
        scale = self._scaling.within(others)
        if not latencies:
            return scale
        left = tightest_ratio(source, latencies) ** _HALVINGS_FOR_LATENCY
        by_choice = self._scaling.within({FLOPS: left * source[FLOPS]})
        return min(scale, max(by_choice, self._scaling.within(latencies)))

    def _edge(self, node: NodePlan) -> Edge:
        return self._edges[node.index]

    @cached_property
    def _edges(self) -> dict[int, Edge]:
        return {node.index: self._edge_of(node) for node in self.plan.nodes}

    def _edge_of(self, node: NodePlan) -> Edge:
        parent, costs = self._costs(node.parent), self._costs(node.index)
        return Edge(
            halvings=self._scaling.halvings(costs),
            distance=distance(parent, node.budget),
            share=parent[FLOPS] / self.plan.source_costs[FLOPS],
            limits_latency=any(map(hardware_of, node.budget)),
            has_targets=bool(node.targets),
            path=self._paths[node.index],
            source_steps=self._estimates.source_steps if node.task is None else 0,
        )

    def _costs(self, index: int | None) -> Costs:
        return self._costs_of_nodes[index]

    @cached_property
    def _costs_of_nodes(self) -> dict[int | None, Costs]:
        """The costs of the root (None) and of each node's network within its limits."""
        costs = dict(zip(self._scales, self._scaling.costs_at([*self._scales.values()]), strict=True))
        for node in self.plan.nodes:
            own = costs[node.index]
            own |= {axis: min(own[axis], limit) for axis, limit in node.budget.items()}
        return dict(costs)

    @cached_property
    def _source(self) -> ScoreForecast | None:
        """The forecast of the tuned source; None if it has never been measured."""
        metric = self.plan.recipe.data.metric
        known = self._history.source(self._subject, self._estimates.source_steps)
        forecast = source_forecast_of(metric, self._estimates, self._trial, known)
        return None if forecast is None else ScoreForecast(OVERALL, metric, forecast, self._history)

    @cached_property
    def _outputs(self) -> tuple[ScoreForecast, ...]:
        """The forecasts of the tuned source's outputs; empty if they were not measured."""
        return tuple(filter(None, map(self._output_forecast, self._estimates.output_scores)))

    def _output_forecast(self, score: OutputScore) -> ScoreForecast | None:
        output, metric = score.output, score.metric
        history = self._history.of_output(self._subject, output, metric)
        known = None
        if history is not self._history:
            known = history.source(self._subject, self._estimates.source_steps)
        trial = self._trial
        if trial is not None:
            tried = {(own.output, own.metric): own.value for own in trial.scores}
            trial = trial.model_copy(update={"accuracy": tried.get((output, metric))})
        came = self._estimates.model_copy(update={"accuracy": score.value})
        forecast = source_forecast_of(metric, came, trial, known)
        return None if forecast is None else ScoreForecast(output, metric, forecast, history)

    def _interval(self, source: ScoreForecast, losses: Sequence[Estimate] = (), steps: int = 0) -> Interval:
        """Return the figure of a network with losses relative to the source's figure.

        Args:
            source: The source, or one of its outputs.
            losses: The relative losses.
            steps: Number of training steps of the network.
        """
        return interval_of(
            source.metric,
            source.forecast,
            losses,
            doublings=log2(1 + steps / (self._estimates.source_steps or steps or 1)),
            gain_in_losses=source.history.knows(self._subject),
            degrees=source.history.degrees(self._subject),
            tested=self._trial.tested if self._trial else None,
        )

    def _estimate(
        self, source: ScoreForecast, losses: Sequence[Estimate] = (), steps: int = 0
    ) -> OutputEstimate:
        return OutputEstimate(source.output, source.metric, self._interval(source, losses, steps))

    @property
    def _step_seconds(self) -> float:
        """Seconds per training step of the source, measured just now or in earlier jobs."""
        return self._estimates.step_seconds or self._history.step_seconds(self._subject) or STEP_SECONDS

    @property
    def _source_seconds(self) -> float:
        """Seconds to load, tune and evaluate the source."""
        tuned = self._estimates.accuracy != self.plan.recipe.data.validation_metric.perfect
        steps = OVERHEAD_STEPS + tuned * self._estimates.source_steps + self._estimates.generating
        return steps * self._step_seconds

    @property
    def _preparing_seconds(self) -> dict[str, float]:
        return {preparation.algorithm: preparation.seconds for preparation in self._preparations}

    @property
    def _preparations(self) -> tuple[PlannedPreparation, ...]:
        """The forecasts of the preparation steps."""
        of = self.plan, self._estimates.profiles, self._chooser, self._edge, self._step_seconds
        return tuple(planned_preparations(*of))

    def _planned(self, node: NodePlan, goals: Mapping[str, Goal]) -> PlannedEdge:
        own = [goals[goal_id] for goal_id in node.goals]
        steps, expected = self._reached(node, riskiest(own))
        work = self._work(node, own, steps)
        return PlannedEdge(
            goals=node.goals,
            parent=own[0].parent,
            budget=node.budget,
            algorithm=node.algorithm,
            choice=node.choice,
            costs=self._costs(node.index),
            accuracy=expected[0].interval if expected else None,
            outputs=expected[1:],
            targets=node.targets,
            steps=steps,
            seconds=work.seconds + work.packaging_seconds,
            warning=self._warning(node, expected, steps),
            precisions=reasons_for_precisions(own),
            task=node.task,
        )

    def _rounds(self, node: NodePlan) -> tuple[int, int]:
        """Return the smallest and the largest number of rounds in which a node's network is tuned.

        A network larger than the source may be tuned up to its step limit.
        """
        grows = self._costs(node.index)[FLOPS] > (1 + _ROUNDING) * self.plan.source_costs[FLOPS]
        if not (node.targets or grows):
            return 1, 1
        most = self._estimates.profiles[node.algorithm].rounds(self._edge(node).distance)
        return (most if grows else 1), most

    def _steps(self, node: NodePlan, precision: Quantization) -> int:
        """Return the steps of an edge, without its scores if it has no targets."""
        if node.targets:
            return self._reached(node, precision)[0]
        return self._chooser.case(self._edge(node), node.algorithm, self._rounds(node)[0]).steps

    def _reached(self, node: NodePlan, precision: Quantization) -> tuple[int, tuple[OutputEstimate, ...]]:
        """Return the steps and scores of an edge that is tuned until its targets are met, if they can be.

        The first score uses the metric of the batch. The scores are empty if the source's are unknown, as
        for a source that serves no single task.
        """
        edge, source = self._edge(node), self._source if node.task is None else None
        least_rounds, most_rounds = self._rounds(node)
        if source is None:
            return self._chooser.case(edge, node.algorithm, least_rounds).steps, ()
        scores = (source, *self._outputs)
        rounds = np.unique(np.geomspace(least_rounds, most_rounds, _ROUNDS).round().astype(int))
        cases = [self._chooser.case(edge, node.algorithm, int(number)) for number in rounds]
        losses = [score.history.lost(cases) for score in scores]
        reached = [
            expected_to_reach(node.targets, figures_after(lost, scores)) for lost in zip(*losses, strict=True)
        ]
        first = reached.index(True) if any(reached) else -1
        case, rounding = cases[first], loss_of(precision)
        return case.steps, tuple(
            self._estimate(score, [lost[first], rounding], case.learned)
            for score, lost in zip(scores, losses, strict=True)
        )


def forecast_of(
    plan: BatchPlan,
    bases: ForecastBases,
    prepared: Collection[str] | None = None,
    trial: SourceTrial | None = None,
) -> Forecast | None:
    """Return the forecast of a batch; None if its model is packaged unchanged.

    Args:
        prepared: See `Chooser`.
        trial: A short trial of tuning the source, which narrows the forecast; None without one.
    """
    basis = bases.of(plan)
    return None if basis is None else Forecast(plan, basis, prepared, trial)
