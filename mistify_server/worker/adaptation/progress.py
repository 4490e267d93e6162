"""Progress of edges and sources, reported to the server."""

from dataclasses import replace
from types import MappingProxyType

from mistify.config.data.metric import Metric
from mistify.costs.budget import Budget
from mistify.jobs.job import ProgressUpdate
from mistify_server.tasks.messages import OnProgress


def reporter(on_progress: OnProgress, metric: Metric, budget: Budget = MappingProxyType({})) -> OnProgress:
    """Return a function that reports progress, completed with the constant values of a task.

    Args:
        on_progress: Receives the progress.
        metric: The metric of the reported accuracies.
        budget: The goal's limits, for comparison with costs.
    """

    def report(update: ProgressUpdate) -> None:
        relative = {axis: update.costs[axis] / limit for axis, limit in budget.items()}
        on_progress(replace(update, metric=metric, costs=dict(update.costs), relative_costs=relative))

    return report
