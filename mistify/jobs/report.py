"""The result of a job as plain data: the content of `report.json`."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mistify.config.data.metric import OutputScore
from mistify.config.package.compression import COMPRESSION_AXES
from mistify.costs.budget import (
    FLOPS,
    LATENCY,
    MEMORY,
    PARAMS,
    SIZE,
    Costs,
    at_threads,
    axis_name,
    conditions_of,
    hardware_of,
    latency_axis,
    memory_axis,
    size_axis,
)
from mistify.costs.catalogue import HOST, is_host
from mistify.costs.formats import AxisFormat
from mistify.costs.quantization import Quantization
from mistify.jobs.comparison import accuracy_change, speedup
from mistify.jobs.formatting import amounts
from mistify.jobs.job import BranchFigures, Goal, GoalState, Job, Source
from mistify.uploads import as_written
from mistify.wording import counted

#: The evidence on this machine, and on hardware without any measurement.
_MEASUREMENT: Final = "measurement"
PREDICTION: Final = "prediction"

#: Evidence -> the wording in tables.
JUDGED: Final = {None: "yes", _MEASUREMENT: "measured", PREDICTION: "predicted"}


def report(job: Job) -> dict[str, object]:
    """Return a job as plain data, the content of `report.json`; null stands for an unknown figure.

    - `name`, `tags`, `submitted_by`: as given at submission or later; empty if there are none.
    - `state`: of the job and of each goal (`JobState`, `GoalState`); a goal is `met` in that state.
    - `flops`: multiply-adds of one inference.
    - `batch`: the number of the goal's batch (model, dataset, algorithm); `sources` has the source of each,
      and `source` is the one of batch 0.
    - `hardware`: the hardware of the goal's limit, else the server's machine; it uses `threads` threads.
    - `latency_ms`, `measured_latency_ms`: predicted for `hardware` with `threads`, and measured there with
      LiteRT; null if it is not the server's machine.
    - `latency_judged_by`: `measurement`, or `prediction` on other hardware; null without a latency limit.
    - `speedup`, `measured_speedup`: the ratio of these latencies, source in float32 to package.
    - `memory_bytes`, `size_bytes`, `accuracy`: of the package at its precision, on the test data.
    - `accuracy_change`: the difference from the tuned source's accuracy; for an error, its relative growth.
    - `targets`: the targets of outputs on the test data; `output` is null for the target of all together.
    - `outputs`: the score of each output on the test data, by its own metric.
    - `branches`: the same figures for each branch, the cheapest first, with its budget as a `share` of the
      goal's; empty if the package has one network.
    - `algorithm`: the algorithm that adapted the model; null if nothing could be adapted. `choice` is the
      reason.
    - `warning`: the limits that were likely to be missed, as predicted at submission.
    - `compression`: the settings and the achieved figures; null if none was requested.
    - `exits`: the allowed losses of accuracy; null if no exits were requested. `note` has their figures.
    - `task`: the task that the package serves, as in a config; null for everything that its source does.
      A package with a task is not compared with the source (`accuracy_change`).
    - `source`: accuracies in LiteRT on the test data, before and after tuning, and the scores of each output
      (`outputs`, `tuned_outputs`), unknown if the data answer tasks; latencies by number of threads; the
      training `steps` of its tuning, and of the algorithms' preparation for all of their goals.
    - `metrics`: metrics added by plug-ins of the server; their figures are listed with the others.
    - `spent`: seconds by activity, summed over all tasks, the longest first.
    """
    formats = job.formats
    sources = [_source_report(source, formats) for source in job.sources]
    return {
        "job": job.id,
        "name": job.name,
        "tags": list(job.tags),
        "submitted_by": job.submitted_by,
        "created_unix_ms": job.created_unix_ms,
        "state": job.state.value,
        "reason": job.reason,
        "seconds": job.seconds,
        "spent": longest_first(job.spent),
        "source": next((source for source in sources if source["batch"] == 0), None),
        "sources": sources,
        "metrics": {
            axis_format.name: {"label": axis_format.label, "unit": axis_format.kind.plain}
            for axis_format in formats
        },
        "goals": [_goal_report(goal, job.source_of(goal), formats) for goal in job.goals],
    }


def _source_report(source: Source, formats: Sequence[AxisFormat]) -> dict[str, object]:
    return {
        "batch": source.batch,
        "model": as_written(source.model),
        **{axis: source.costs.get(axis) for axis in (FLOPS, PARAMS, MEMORY, SIZE)},
        **_plugged_in(source.costs, formats),
        "measured_latency_ms": {
            str(conditions_of(axis).threads): latency for axis, latency in source.measured.items()
        },
        "accuracy": source.accuracy,
        "tuned_accuracy": source.tuned_accuracy,
        "metric": source.metric.value,
        "outputs": _scores_report(source.output_scores),
        "tuned_outputs": _scores_report(source.tuned_output_scores),
        "steps": source.steps,
        "preparing_steps": dict(source.preparing_steps),
    }


def _scores_report(scores: Iterable[OutputScore]) -> list[dict[str, object]]:
    return [{"output": score.output, "metric": score.metric.value, "value": score.value} for score in scores]


def _goal_report(goal: Goal, source: Source | None, formats: Sequence[AxisFormat]) -> dict[str, object]:
    return {
        "id": goal.id,
        "batch": goal.batch,
        "parent": goal.parent,
        "algorithm": goal.algorithm or None,
        "choice": goal.choice,
        "warning": goal.warning,
        "quantization": goal.spec.quantization.model_dump(mode="json"),
        "precision_choice": goal.precision_choice,
        "compression": _compression_report(goal),
        "exits": None if goal.spec.exits is None else goal.spec.exits.model_dump(mode="json"),
        "task": None if goal.spec.task is None else goal.spec.task.model_dump(mode="json"),
        "hardware": hardware_of_goal(goal),
        "threads": goal.spec.threads,
        "latency_judged_by": judged_by(goal),
        "budget": amounts(goal.spec.budget, formats),
        "targets": [
            {"output": target.output or None, "metric": target.metric.value, "value": target.value}
            for target in goal.spec.targets
        ],
        "achieved": {**_achieved(goal, goal, source, formats), "metric": goal.metric.value},
        "outputs": _scores_report(goal.output_scores),
        "branches": [
            {"share": branch.share, **_achieved(goal, branch, source, formats)}
            for branch in goal.branch_figures
        ],
        "state": goal.state.value,
        "met": goal.state is GoalState.MET,
        "reason": goal.reason,
        "note": goal.note,
        "seconds": goal.seconds,
        "steps": goal.steps,
    }


def _plugged_in(
    costs: Costs,
    formats: Iterable[AxisFormat],
    hardware: str = HOST.name,
    precision: Quantization = Quantization.NONE,
) -> dict[str, float | None]:
    """Return the figures of a network on the axes of plug-ins, for given hardware and precision."""
    figures: dict[str, float | None] = {}
    for axis_format in formats:
        cost = axis_format.cost(costs, hardware, precision)
        figures[axis_format.name] = None if cost is None else axis_format.converted(cost)
    return figures


def _achieved(
    goal: Goal, network: Goal | BranchFigures, source: Source | None, formats: Iterable[AxisFormat]
) -> dict[str, float | None]:
    """Return the costs and the accuracy of a package, or of one of its branches."""
    precision, integer_inputs = goal.spec.quantization.precision, goal.spec.quantization.integer_inputs
    return {
        **{axis: network.achieved.get(axis) for axis in (FLOPS, PARAMS)},
        MEMORY: network.achieved.get(memory_axis(precision, integer_inputs=integer_inputs)),
        SIZE: network.achieved.get(size_axis(precision)),
        **_plugged_in(network.achieved, formats, profile_of_goal(goal), precision),
        "latency_ms": latency_of(goal, network.achieved),
        "measured_latency_ms": measured_latency(goal, network),
        **speedups(goal, network, source),
        "accuracy": network.accuracy,
        "accuracy_change": accuracy_change(goal, network.accuracy, source),
    }


def _compression_report(goal: Goal) -> dict[str, object] | None:
    if goal.spec.compression is None:
        return None
    requested = goal.spec.compression.model_dump(mode="json", exclude_none=True)
    return {**requested, **{axis: goal.achieved.get(axis) for axis in COMPRESSION_AXES}}


def hardware_of_goal(goal: Goal) -> str:
    """Return the hardware to which a goal's costs refer: its limits' hardware, or the server's machine."""
    named = (conditions_of(axis).hardware for axis in goal.spec.budget)
    return next(filter(None, named), HOST.name)


def profile_of_goal(goal: Goal) -> str:
    """Return the name of that hardware with the goal's number of threads."""
    return at_threads(hardware_of_goal(goal), goal.spec.threads)


def hardware_named(goal: Goal) -> str:
    """Return the hardware of a goal and its threads as text; empty for the server's machine."""
    hardware = hardware_of_goal(goal)
    if is_host(hardware):
        return ""
    return hardware if goal.spec.threads == 1 else f"{hardware} with {goal.spec.threads} threads"


def source_elsewhere(source: Source, goals: Iterable[Goal]) -> dict[str, float]:
    """Return the latency of a source on all hardware that goals name, except the server's machine.

    It is predicted, in float32, in the same way as the packages' latencies: a latency measured on the
    server's machine would not show a package's speedup there.

    Returns:
        Latency in milliseconds by hardware, with names from `hardware_named`.
    """
    axes = {hardware_named(goal): latency_axis(profile_of_goal(goal)) for goal in goals}
    return {name: source.costs[axis] for name, axis in axes.items() if name and axis in source.costs}


def latency_of(goal: Goal, costs: Costs) -> float | None:
    """Return the latency on the goal's hardware, at the goal's precision if it is known there."""
    hardware, precision = profile_of_goal(goal), goal.spec.quantization.precision
    return costs.get(axis_name(LATENCY, hardware, precision), costs.get(latency_axis(hardware)))


def measured_latency(goal: Goal, network: Goal | BranchFigures) -> float | None:
    """Return the measured latency on the goal's hardware; None if it is not the server's machine."""
    return latency_of(goal, network.measured) if is_host(hardware_of_goal(goal)) else None


def speedups(goal: Goal, network: Goal | BranchFigures, source: Source | None) -> dict[str, float | None]:
    """Return the predicted and the measured speedup of a package over its float32 source."""
    known, axis = source or Source({}), latency_axis(profile_of_goal(goal))
    return {
        "speedup": speedup(known.costs.get(axis), latency_of(goal, network.achieved)),
        "measured_speedup": speedup(known.measured.get(axis), measured_latency(goal, network)),
    }


def outcome(goal: Goal) -> str:
    """Return the state of a goal as text, with the evidence for its latency: `met (predicted)`."""
    judged = judged_by(goal) if goal.state is GoalState.MET else None
    return f"{goal.state.value} ({JUDGED[judged]})" if judged else goal.state.value


def judged_by(goal: Goal) -> str | None:
    """Return the evidence used to judge a goal's latency limit; None if it has no such limit."""
    if not any(map(hardware_of, goal.spec.budget)):
        return None
    return _MEASUREMENT if is_host(hardware_of_goal(goal)) else PREDICTION


def longest_first(spent: Mapping[str, float]) -> dict[str, float]:
    """Return seconds by activity, the longest first."""
    return dict(sorted(spent.items(), key=lambda item: item[1], reverse=True))


def preparations(sources: Iterable[Source]) -> str:
    """Return the number of steps in which algorithms have prepared for all of their goals, as text."""
    steps = Counter[str]()
    for source in sources:
        steps.update(source.preparing_steps)
    return ", ".join(
        f"{algorithm} prepared in {counted(count, 'step')}" for algorithm, count in steps.items()
    )


def time_shares(spent: Mapping[str, float]) -> dict[str, str]:
    """Return each activity's share of the time, the longest first, without shares that round to 0%."""
    total = sum(spent.values()) or 1.0
    shares = {activity: f"{seconds / total:.0%}" for activity, seconds in longest_first(spent).items()}
    return {activity: share for activity, share in shares.items() if share != "0%"}
