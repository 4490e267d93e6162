"""Comparison of packages with their source."""

from mistify.jobs.formatting import quality
from mistify.jobs.job import Goal, Source


def accuracy_change(goal: Goal, accuracy: float | None, source: Source | None) -> float | None:
    """Return the difference between a package's accuracy and the tuned source's; None if one is unknown.

    None also for a package with a task, because the source's accuracy covers all tasks.

    Args:
        accuracy: The accuracy of the package, or of one of its branches.
        source: None if unknown.

    Returns:
        For a share, the difference; for an error, its relative growth.
    """
    reference = None if source is None or goal.spec.task is not None else source.tuned_accuracy
    if accuracy is None or reference is None:
        return None
    if goal.metric.is_share:
        return accuracy - reference
    return accuracy / reference - 1 if reference else None


def compared_quality(goal: Goal, accuracy: float | None, source: Source | None) -> str:
    """Return an accuracy with its change in points, `78.4% (-3.1)`, or an error with its relative growth."""
    shown, change = quality(goal.metric, accuracy), accuracy_change(goal, accuracy, source)
    if change is None:
        return shown
    points = round(100 * change, 1) + 0.0  # no -0.0
    return f"{shown} ({points:+.1f})" if goal.metric.is_share else f"{shown} ({points:+.0f}%)"


def speedup(before: float | None, after: float | None) -> float | None:
    """Return the speedup of a package over its source; None if a latency is unknown."""
    return before / after if before and after else None
