"""Progress of edges and sources, reported to the server."""

from dataclasses import replace
from types import MappingProxyType

from mistify.config.data.metric import Metric
from mistify.costs.budget import Budget
from mistify.jobs.job import ProgressUpdate
from mistify_server.tasks.messages import OnProgress


def reporter(on_progress: OnProgress, metric: Metric, budget: Budget = MappingProxyType({})) -> OnProgress:
    """Return a function that reports progress, with the values that stay the same during a task.

    Args:
        on_progress: Receives the progress.
        metric: The metric of its accuracies.
        budget: The goal's limits, which its costs are compared with.
    """

    def report(update: ProgressUpdate) -> None:
        relative = {axis: update.costs[axis] / limit for axis, limit in budget.items()}
        on_progress(replace(update, metric=metric, costs=dict(update.costs), relative_costs=relative))

    return report
