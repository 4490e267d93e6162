"""The source itself as the outcome of an edge: because it is enough, or better than the adapted network."""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import keras

from executors.contract.assignment import Assignment
from executors.contract.params import Params
from executors.training.evaluation import Evaluation
from mistify.config.data.targets import Target, serves_better
from mistify.costs.axes import costs_of
from mistify.costs.budget import Costs, meets
from mistify_server.worker.adaptation.converted_costs import CostReader
from mistify_server.worker.adaptation.edge import EdgeOutcome, reading_of, shortfall
from mistify_server.worker.adaptation.latency import LatencyMeter, corrected, limits_latency, with_margin
from mistify_server.worker.adaptation.progress import EdgeProgress
from mistify_server.worker.adaptation.tuning import CHECK_EXAMPLES, steps_of_uncut
from mistify_server.worker.adaptation.widening import is_widened
from mistify_server.worker.packaging.measurement.file_costs import is_stored

#: Minimum relative improvement that justifies higher costs than the source's: seeds differ by as much.
_WORTH_MORE: Final = 0.005


def source_if_enough(
    source: keras.Model,
    assignment: Assignment,
    params: Params,
    targets: Collection[Target],
    progress: EdgeProgress,
    *,
    measure: LatencyMeter,
    read: CostReader,
) -> EdgeOutcome | None:
    """Return the source if it meets the goal and has nothing left to learn; None otherwise.

    Running the edge would give the same network, after building, tracing and evaluating a copy.

    Args:
        progress: Receives the accuracy.
    """
    setup = assignment.setup
    if not params.tune_steps or is_widened(assignment):
        return None
    costs = _stored_costs(source, assignment, read)
    evaluation = Evaluation(source)
    if costs is None or steps_of_uncut(
        evaluation, assignment, params, setup.validation.sample(CHECK_EXAMPLES)
    ):
        return None
    costs = _measured_costs(source, assignment, costs, measure)
    if costs is None:
        return None
    scores, confident = evaluation.judge(setup.validation, setup.metric, setup.settings.metrics, targets)
    if not confident:
        return None
    progress.report(replace(progress.tuning(0, 0, costs, last=True), accuracy=scores.overall))
    return EdgeOutcome(source, costs, scores, 0, met=True, reason="", spared=params.tune_steps)


def source_if_better(
    outcome: EdgeOutcome,
    source: keras.Model,
    assignment: Assignment,
    targets: Collection[Target],
    *,
    measure: LatencyMeter,
    read: CostReader,
) -> EdgeOutcome:
    """Return the source instead of an outcome if it meets the budget and serves the goal better.

    At equal costs, it only needs to be equally good; at lower costs, nearly as good.
    """
    setup = assignment.setup
    costs = _stored_costs(source, assignment, read)
    if costs is None:
        return outcome
    scores, _ = Evaluation(source).judge(setup.validation, setup.metric, setup.settings.metrics)
    if all(costs[axis] <= cost for axis, cost in outcome.costs.items()):
        is_cheaper = any(costs[axis] < cost for axis, cost in outcome.costs.items())
        by = _WORTH_MORE if is_cheaper else 0.0
        serves = not serves_better(setup.metric, outcome.scores, scores, targets, by=by)
    else:
        serves = serves_better(setup.metric, scores, outcome.scores, targets)
    measured = _measured_costs(source, assignment, costs, measure) if serves else None
    if measured is None:
        return outcome
    reason = shortfall(measured, assignment, scores, targets, outcome.steps)
    return replace(outcome, model=source, costs=measured, scores=scores, met=not reason, reason=reason)


def _stored_costs(source: keras.Model, assignment: Assignment, read: CostReader) -> Costs | None:
    """Return the source's costs, with those of its file; None if they exceed the budget."""
    costs = costs_of(assignment.source.network(), assignment.profiles)
    if meets(costs, assignment.budget):
        costs = {**costs, **read(source)}
    return costs if meets(costs, assignment.budget) else None


def _measured_costs(
    source: keras.Model, assignment: Assignment, costs: Costs, measure: LatencyMeter
) -> Costs | None:
    """Return the source's costs, with measured latencies; None if these exceed the budget.

    As for other networks, limits on this machine's latency apply to measurements with the same margin.
    """
    if not limits_latency(assignment.budget):
        return costs
    reading = reading_of(source, measure, assignment.profiles, assignment.budget)
    if reading is None:
        return None
    stored = {axis: cost for axis, cost in costs.items() if is_stored(axis)}
    profiles = corrected(assignment.profiles, reading.deviation)
    costs = {**costs_of(assignment.source.network(), profiles), **stored}
    return costs if meets(costs, with_margin(assignment.budget)) else None
