"""Jobs with many goals on many kinds of hardware, as if they had been adapted."""

from dataclasses import replace
from itertools import cycle, islice
from typing import Final

from mistify.config.data.metric import Metric, OutputScore
from mistify.costs.budget import Costs, latency_axis
from mistify.costs.catalogue import HOST, catalogue
from mistify.jobs.formatting import excess
from mistify.jobs.job import Goal, GoalState, Job, JobState, PackageFile, Source
from mistify.jobs.package_spec import PackageSpec

#: Kinds of hardware: those of the catalogue, and measured ones.
HARDWARE: Final = (*(catalogue().keys() - {HOST.name}), "pixel-8", "galaxy-s24", "imx8", "cortex-m7")

_FILES: Final = (PackageFile("serve.tflite", 80_000, "0" * 64),)


def source_costs() -> dict[str, float]:
    """Return the costs of the source, with its latency on all hardware."""
    latencies = {latency_axis(name): 2.0 + place for place, name in enumerate(sorted(HARDWARE))}
    here = {latency_axis(HOST.name): 1.0}
    return {"flops": 1e6, "params": 80e3, "memory_bytes": 200e3, "size_bytes": 350e3, **latencies, **here}


def job_of(count: int, outputs: tuple[str, ...] = ()) -> Job:
    """Return a finished job: every fifth goal limits multiply-adds, the others a latency elsewhere.

    Every seventh goal misses its limit. Goals are adapted from the first one or from the source.

    Args:
        count: Number of goals.
        outputs: Names of the outputs; none for one output.
    """
    costs = source_costs()
    hardware = cycle(sorted(HARDWARE))
    goals = []
    for number, where in enumerate(islice(hardware, count)):
        share = 0.2 + 0.7 * (number % 10) / 10
        axis = "flops" if number % 5 == 4 else latency_axis(where)
        goals.append(_goal(number, axis, share, costs, "" if axis == "flops" else where))
    goals = [
        replace(goal, output_scores=tuple(_score(name, goal) for name in outputs)) if outputs else goal
        for goal in goals
    ]
    source = Source(
        costs, 0.93, model="digits-resnet", tuned_accuracy=0.95, measured={latency_axis(HOST.name): 1.0}
    )
    spent = {"training": 300.0, "tracing": 60.0, "packaging": 40.0}
    return Job("demo-20", JobState.DONE, tuple(goals), 1_764_000_000_000, (source,), 480.0, spent)


def _goal(number: int, axis: str, share: float, costs: Costs, hardware: str) -> Goal:
    missed = number % 7 == 6
    achieved = {name: (1.02 if missed else 0.97) * share * cost for name, cost in costs.items()}
    named = f"classifier-{hardware or 'any'}-{share:.2f}x-{number}"
    judged = (
        f"is judged by the latency on {hardware} predicted from its data sheet, without measurements there"
    )
    return Goal(
        named,
        0,
        PackageSpec({axis: share * costs[axis]}),
        parent=None,
        algorithm="morphnet",
        state=GoalState.UNMET if missed else GoalState.MET,
        achieved=achieved,
        measured={latency_axis(HOST.name): share},
        accuracy=0.7 + 0.25 * share,
        reason=excess(achieved, {axis: share * costs[axis]}) if missed else "",
        note=judged if hardware else "",
        seconds=22.0,
        steps=500,
        files=_FILES,
    )


def _score(output: str, goal: Goal) -> OutputScore:
    assert goal.accuracy is not None
    return OutputScore(output, Metric.ACCURACY, goal.accuracy - 0.01 * len(output))
