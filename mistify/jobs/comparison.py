"""Packages compared with the source that they were made from."""

from mistify.jobs.formatting import quality
from mistify.jobs.job import Goal, Source


def accuracy_change(goal: Goal, accuracy: float | None, source: Source | None) -> float | None:
    """Return the difference between a package's accuracy and the tuned source's, None if one is unknown.

    None as well for a package of one task: the source's accuracy is that of all.

    Args:
        accuracy: The accuracy of the package, or of one of its branches.
        source: None while it is unknown.

    Returns:
        For a share, the difference; for an error, its growth as a share of the tuned source's error.
    """
    reference = None if source is None or goal.spec.task is not None else source.tuned_accuracy
    if accuracy is None or reference is None:
        return None
    if goal.metric.is_share:
        return accuracy - reference
    return accuracy / reference - 1 if reference else None


def compared_quality(goal: Goal, accuracy: float | None, source: Source | None) -> str:
    """Return an accuracy with its change in points, `78.4% (-3.1)`, or an error with its growth."""
    shown, change = quality(goal.metric, accuracy), accuracy_change(goal, accuracy, source)
    if change is None:
        return shown
    points = round(100 * change, 1) + 0.0  # no -0.0
    return f"{shown} ({points:+.1f})" if goal.metric.is_share else f"{shown} ({points:+.0f}%)"


def speedup(before: float | None, after: float | None) -> float | None:
    """Return how many times faster a package is than its source; None if a latency is unknown."""
    return before / after if before and after else None
