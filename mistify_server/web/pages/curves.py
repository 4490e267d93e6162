"""The training curves of a goal, as data for the script of its page."""

from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter

from mistify.costs.formats import AxisFormat
from mistify.jobs.details import GoalDetails
from mistify.jobs.formatting import label
from mistify.jobs.job import Goal, ProgressUpdate

_POINTS: TypeAdapter[tuple[ProgressUpdate, ...]] = TypeAdapter(tuple[ProgressUpdate, ...])


def curves_of(goal: Goal, details: GoalDetails, formats: Iterable[AxisFormat]) -> dict[str, Any]:
    """Return the points of a goal's curves, in the form of events, and the labels of its axes.

    Args:
        details: Provides the points.
        formats: Formats of axes from plug-ins.
    """
    axes = {*goal.spec.budget, *(axis for point in details.curve for axis in point.relative_costs)}
    return {
        "metric": goal.metric.value,
        "share": goal.metric.is_share,
        "labels": {axis: label(axis, formats) for axis in sorted(axes)},
        "points": _POINTS.dump_python(details.curve, mode="json"),
    }
