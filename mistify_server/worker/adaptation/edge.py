"""One edge of a goal tree: from the parent's network to the goal (paper 4.2, 4.3)."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import inf, sqrt
from operator import itemgetter

import keras

from executors.contract.assignment import Assignment
from executors.contract.executor import AdaptationExecutor, StuckError
from executors.contract.params import Params
from executors.data import Array
from executors.structure import analyse
from mistify.config.data.targets import Scores, Target, missed, serves_better
from mistify.costs.axes import costs_of
from mistify.costs.budget import Budget, Costs, meets
from mistify.jobs.formatting import excess
from mistify.wording import counted
from mistify_server.tasks.messages import OnProgress
from mistify_server.worker.adaptation.converted_costs import CostReader, limits_storage, tightened
from mistify_server.worker.adaptation.latency import (
    LatencyMeter,
    LatencyReading,
    Profiles,
    corrected,
    deviation_at,
    limits_latency,
    with_margin,
)
from mistify_server.worker.adaptation.progress import EdgeProgress
from mistify_server.worker.adaptation.schedule import StructureLossSchedule
from mistify_server.worker.adaptation.tuning import (
    CHECK_EXAMPLES,
    TuningReport,
    rounds,
    steps_of_first_round,
    tune,
)
from mistify_server.worker.adaptation.widening import is_widened

#: Maximum number of times that a network is measured in LiteRT and adapted again if it is too slow or too
#: narrow.
_CORRECTIONS = 2

#: Maximum number of architectures that are planned and measured before an edge is adapted.
_PLANS = 6

#: A network that uses less than this share of its limits is cut again from the parent.
_LEAST_USED = 0.95


@dataclass(frozen=True)
class EdgeOutcome:
    """The goal's network, or the best one found, ready to be served.

    Attributes:
        steps: Number of training steps.
        spared: Number of steps of `tune_steps` that the network did not need.
    """

    model: keras.Model
    costs: Costs
    scores: Scores
    steps: int
    met: bool
    reason: str
    spared: int = 0


def run_edge(
    executor: AdaptationExecutor,
    assignment: Assignment,
    params: Params,
    targets: Collection[Target],
    report: OnProgress,
    *,
    measure: LatencyMeter,
    read: CostReader,
    planned_steps: int = 0,
) -> EdgeOutcome:
    """Adapt until the budget is met, then tune until the targets are met, within the step limit.

    Limits on this machine's latency apply to latencies in LiteRT according to `measure`; limits on memory and
    size apply to the converted network according to `read`. A target counts as met when the network reaches
    it with 90 % confidence on the validation data, because goals are judged on test data. A network larger
    than the source is tuned until its validation accuracy stops improving.

    Args:
        report: Receives the progress.
        measure: Measures latencies in LiteRT.
        read: Reads costs from converted networks.
        planned_steps: Expected number of steps; 0 if unknown.

    Raises:
        FloatingPointError: Training diverged.
    """
    progress = EdgeProgress(report, planned_steps, params)
    steps, stuck, stored = _adapt_by_file(executor, assignment, params, progress, measure=measure, read=read)
    executor.adjust(dict.fromkeys(assignment.budget, 0.0))
    scores, steps, spared = _tune(executor, assignment, params, targets, progress, steps=steps)
    costs = {**executor.measure(), **stored}
    reason = stuck or shortfall(costs, assignment, scores, targets, steps)
    return EdgeOutcome(executor.network(), costs, scores, steps, not reason, reason, spared)


def _tune(
    executor: AdaptationExecutor,
    assignment: Assignment,
    params: Params,
    targets: Collection[Target],
    progress: EdgeProgress,
    *,
    steps: int,
) -> tuple[Scores, int, int]:
    """Tune a network that meets its budget in rounds.

    Returns:
        Its scores, the total number of steps, and the number of steps that it did not need.
    """
    costs, setup, trainer = executor.measure(), assignment.setup, executor.trainer
    sample, widened = setup.validation.sample(CHECK_EXAMPLES), is_widened(assignment)
    if widened:
        trainer.learning_rate = trainer.usual_rate
    first, begun = steps_of_first_round(executor, assignment, params, sample), steps
    best, weights = Scores(setup.metric.worst), list[Array]()
    for number, round_steps in enumerate(rounds(steps, params, first, 2 if widened else 1)):
        start = progress.tuning(steps, round_steps, costs, last=not targets and not widened)
        tune(trainer, round_steps, TuningReport(progress.report, start, round_steps, trainer, setup, sample))
        steps += round_steps
        if round_steps or not executor.calibrated:
            trainer.evaluation.recalibrate(setup.train)
        scores, confident = trainer.evaluation.judge(
            setup.validation, setup.metric, setup.settings.metrics, targets
        )
        progress.report(replace(start, step=steps, accuracy=scores.overall, loss=trainer.loss))
        if widened:
            if number and not serves_better(setup.metric, scores, best, targets):
                trainer.model.set_weights(weights)
                break
            weights = trainer.model.get_weights()
        best = scores
        if steps >= params.max_steps or (confident and not widened):
            break
    return best, steps, params.tune_steps - first if steps == begun else 0


def _adapt_by_file(
    executor: AdaptationExecutor,
    assignment: Assignment,
    params: Params,
    progress: EdgeProgress,
    *,
    measure: LatencyMeter,
    read: CostReader,
) -> tuple[int, str, Costs]:
    """Adapt until the network's file meets its limits.

    If the file exceeds the forecast, for example because the converter leaves a kernel in float32, the
    network is cut further, at most twice. If it is smaller, a limit that seemed unreachable may be met.

    Returns:
        The total number of steps, the reason if the budget was not met, and the costs read from the file.
    """
    at, steps, stuck, stored = assignment, 0, "", dict[str, float]()
    for attempt in range(1 + _CORRECTIONS):
        if limits_latency(at.budget):
            steps, stuck = _adapt_by_measurement(executor, at, params, progress, measure=measure, steps=steps)
        else:
            steps, stuck = _adapt(
                executor, replace(at, budget=with_margin(at.budget)), params, progress, steps
            )
        if not limits_storage(assignment.budget):
            break
        network = executor.network()
        stored = dict(read(network))
        foreseen = executor.measure()
        if stored and meets({**foreseen, **stored}, with_margin(assignment.budget)):
            return steps, "", stored
        if (
            stuck
            or attempt == _CORRECTIONS
            or all(cost <= assignment.budget[axis] for axis, cost in stored.items())
        ):
            break
        at = replace(at, model=network, budget=tightened(assignment.budget, foreseen, stored))
    return steps, stuck, stored


def _adapt_by_measurement(
    executor: AdaptationExecutor,
    assignment: Assignment,
    params: Params,
    progress: EdgeProgress,
    *,
    measure: LatencyMeter,
    steps: int,
) -> tuple[int, str]:
    """Adapt like `_adapt`, with profiles corrected by the networks' latencies in LiteRT.

    If the executor knows the final architecture beforehand, it plans one that makes the most of the limits.
    If the adapted network is slower than the profiles predict, they are corrected again, and the network is
    cut further, at most twice. If the first network was not planned and leaves room within its limits, it is
    cut again from the parent and becomes wider. All this happens before tuning, because latency does not
    depend on weights. Networks that cannot run here are assumed to have the predicted latency.
    """
    aim, nominal, at = with_margin(assignment.budget), assignment.profiles, assignment
    parent = reading_of(at.model, measure, nominal, aim)
    readings = [] if parent is None else [parent]
    planned = _planned_by_measurement(executor, replace(at, budget=aim), readings, measure)
    profiles = planned or corrected(nominal, deviation_at(aim, readings[:1]))
    for attempt in range(1 + _CORRECTIONS):
        steps, stuck = _adapt(executor, replace(at, budget=aim, profiles=profiles), params, progress, steps)
        if stuck or attempt == _CORRECTIONS:
            break
        network = executor.network()
        reading = reading_of(network, measure, nominal, aim)
        if reading is None:
            break
        readings.append(reading)
        costs = costs_of(analyse(network).network(), corrected(nominal, reading.deviation))
        if not meets(costs, aim):
            at = replace(at, model=network)
        elif (
            attempt == 0
            and planned is None
            and not meets(costs_of(analyse(at.model).network(), profiles), aim)
            and _leaves_room(costs, aim)
            and 2 * steps + params.tune_steps <= params.max_steps
        ):
            at = replace(at, model=assignment.model)
        else:
            break
        profiles = corrected(nominal, deviation_at(aim, readings))
    return steps, stuck


def _planned_by_measurement(
    executor: AdaptationExecutor,
    assignment: Assignment,
    readings: list[LatencyReading],
    measure: LatencyMeter,
) -> Profiles | None:
    """Return the profiles for which an executor's planned architecture makes the most of the limits.

    Each plan is measured, and its reading corrects the profiles for the next plan, until one just meets the
    limits in LiteRT. The error of a profile is a few per cent and depends on the architecture, so a plan's
    own correction may lead back to an earlier plan. The next correction is then chosen between those that
    left too much room and those that left too little. The plan that meets the limits most closely wins. The
    search ends at a plan that cannot run here, because the next plan would be the same without its reading.

    Args:
        readings: Readings of the parent, if it runs here; readings of the plans are appended.

    Returns:
        The corrected profiles; None if the executor cannot plan the architecture.
    """
    budget, nominal = assignment.budget, assignment.profiles
    best: tuple[float, Profiles] | None = None
    too_little, too_much = 0.0, inf
    for _ in range(_PLANS):
        deviation = deviation_at(budget, readings)
        if not too_little < deviation < too_much and 0 < too_little < too_much < inf:
            deviation = sqrt(too_little * too_much)
        profiles = corrected(nominal, deviation)
        network = executor.preview(replace(assignment, profiles=profiles))
        if network is None:
            return best[1] if best else None
        reading = reading_of(network, measure, nominal, budget)
        if reading is None:
            break
        readings.append(reading)
        costs = costs_of(analyse(network).network(), corrected(nominal, reading.deviation))
        used = max(costs[axis] / limit for axis, limit in budget.items())
        if used > 1:
            too_little = max(too_little, deviation)
        else:
            too_much = min(too_much, deviation)
            best = max(best or (0.0, profiles), (used, profiles), key=itemgetter(0))
        if _LEAST_USED <= used <= 1:
            break
    return best[1] if best else corrected(nominal, deviation_at(budget, readings))


def reading_of(
    network: keras.Model, measure: LatencyMeter, profiles: Profiles, budget: Budget
) -> LatencyReading | None:
    """Return the reading of a network; None if it cannot run here."""
    taken_ms = measure(network)
    if taken_ms is None:
        return None
    return LatencyReading.of(analyse(network).network(), taken_ms, profiles, budget)


def _leaves_room(costs: Costs, budget: Budget) -> bool:
    """Check whether all costs are well below their limits."""
    return all(costs[axis] < _LEAST_USED * limit for axis, limit in budget.items())


def _adapt(
    executor: AdaptationExecutor, assignment: Assignment, params: Params, progress: EdgeProgress, steps: int
) -> tuple[int, str]:
    """Iterate until the budget is met; return the total steps and, if it was not met, the reason."""
    executor.init(assignment)
    costs = executor.measure()
    schedule = StructureLossSchedule(assignment.budget, costs, params.schedule_interval)
    stuck = ""
    progress.adapting(steps, costs, schedule.weights(costs, steps))
    while not meets(costs, assignment.budget) and steps < params.max_steps:
        weights = schedule.weights(costs, steps)
        executor.adjust(weights)
        try:
            taken = executor.iterate()
        except StuckError as error:
            stuck = str(error)
            break
        before, costs, steps = costs, executor.measure(), steps + taken
        if not taken and costs == before:
            stuck = f"{excess(costs, assignment.budget)}; the algorithm no longer trains or cuts"
            break
        progress.adapting(steps, costs, weights, executor.trainer.loss)
    return steps, stuck


def shortfall(
    costs: Costs, assignment: Assignment, scores: Scores, targets: Collection[Target], steps: int
) -> str:
    """Describe the limits and the targets that a network misses; empty if it meets the goal."""
    over = excess(costs, assignment.budget)
    if over:
        return f"{over} after {counted(steps, 'step')}, the step limit"
    short = missed(targets, scores)
    return f"{short} on the validation data after {counted(steps, 'step')}" if short else ""
