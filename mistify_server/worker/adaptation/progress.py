"""Progress of edges and sources, as it is reported to the server."""

from collections.abc import Callable
from typing import TypeAlias

from mistify.config.metric import Metric
from mistify.costs.budget import Costs
from mistify.jobs.job import ProgressUpdate
from mistify_server.tasks.messages import OnProgress

#: Takes the stage, the steps so far, the steps in all, the costs, and the accuracy if it was measured.
Report: TypeAlias = Callable[[str, int, int, Costs, float | None], None]


def reporter(on_progress: OnProgress, metric: Metric) -> Report:
    """Return a function that reports progress, with accuracies by one metric."""

    def report(stage: str, step: int, total: int, costs: Costs, accuracy: float | None) -> None:
        on_progress(
            ProgressUpdate(
                stage=stage, step=step, total_steps=total, costs=dict(costs), accuracy=accuracy, metric=metric
            )
        )

    return report
