"""What came of a job: `report.json` for programs, a table for people."""

import json
import os
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from mistify.budget import FLOPS, LATENCY, MEMORY, PARAMS, Costs
from mistify.jobs import Goal, GoalState, Job
from mistify_client.figures import amount, latency_of, per_cent

REPORT = "report.json"

#: What a terminal of 80 columns leaves for the names of goals.
_NAME_WIDTH = 10


def report(job: Job) -> dict[str, object]:
    """A job as plain data, the form of `report.json`; null stands for what was not achieved or measured.

    `flops` are multiply-adds of one inference, `latency_ms` is the one on the first hardware profile.
    """
    source = job.source
    return {
        "job": job.id,
        "seconds": job.seconds,
        "source": None
        if source is None
        else {
            **{axis: source.costs.get(axis) for axis in (FLOPS, PARAMS, MEMORY)},
            "accuracy": source.accuracy,
        },
        "goals": [_goal_report(goal) for goal in job.goals],
    }


def _goal_report(goal: Goal) -> dict[str, object]:
    return {
        "id": goal.id,
        "parent": goal.parent,
        "budget": dict(goal.budget),
        "achieved": {
            **{axis: goal.achieved.get(axis) for axis in (FLOPS, PARAMS, MEMORY)},
            "latency_ms": latency_of(goal.achieved),
            "accuracy": goal.accuracy,
        },
        "met": goal.state is GoalState.MET,
        "reason": goal.reason,
        "seconds": goal.seconds,
        "steps": goal.steps,
    }


def write_json(path: Path, value: object) -> None:
    """Write a JSON file so that a reader finds the old or the new content, nothing between."""
    partial = path.with_name(f"{path.name}.part")
    partial.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, path)


def table(job: Job) -> Table:
    """A job's goals, below the source model."""
    title = f"job {job.id}: {job.state.value}, {job.seconds:.0f} s"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in ("goal", "parent"):
        table.add_column(column, overflow="fold", min_width=_NAME_WIDTH)
    for column in ("multiply-\nadds", "share", "params", "memory", "latency", "accuracy"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("met", no_wrap=True)
    source = job.source
    if source is not None:
        table.add_row(
            "source", "", *_costs(source.costs, source.costs), per_cent(source.accuracy), "", end_section=True
        )
    for goal in job.goals:
        costs = _costs(goal.achieved, source.costs if source else {})
        met = "yes" if goal.state is GoalState.MET else "no"
        table.add_row(goal.id, goal.parent or "source", *costs, per_cent(goal.accuracy), met)
    return table


def _costs(costs: Costs, source: Costs) -> list[str]:
    share = costs[FLOPS] / source[FLOPS] if costs.get(FLOPS) and source.get(FLOPS) else None
    return [
        amount(FLOPS, costs.get(FLOPS)),
        "-" if share is None else f"{share:.2f}",
        amount(PARAMS, costs.get(PARAMS)),
        amount(MEMORY, costs.get(MEMORY)),
        amount(LATENCY, latency_of(costs)),
    ]
