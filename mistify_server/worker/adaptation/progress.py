"""Progress of edges and sources, reported to the server."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from executors.contract.params import Params
from mistify.config.data.metric import Metric
from mistify.costs.budget import Budget, Costs
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


@dataclass(frozen=True)
class EdgeProgress:
    """Reports the progress of an edge, with the number of steps that it is now expected to take.

    Attributes:
        report: Receives the progress.
        planned: Number of steps expected beforehand; 0 if unknown.
        params: Settings with the step limit and the length of a round of tuning.
    """

    report: OnProgress
    planned: int
    params: Params

    def adapting(
        self, steps: int, costs: Costs, weights: Mapping[str, float], loss: float | None = None
    ) -> None:
        """Report the state of a network that does not meet its limits yet, and will then be tuned."""
        total = self._expected(steps, steps + self.params.tune_steps)
        self.report(
            ProgressUpdate("adapting", steps, total, costs, loss=loss, structure_loss_weights=weights)
        )

    def tuning(self, steps: int, more: int, costs: Costs, *, last: bool) -> ProgressUpdate:
        """Return the progress at the start of a round of tuning.

        Args:
            steps: Number of steps so far.
            more: Number of steps in the round.
            last: True if no other round can follow.
        """
        end = steps + more
        return ProgressUpdate("tuning", steps, end if last else self._expected(end, end), costs)

    def _expected(self, least: int, likely: int) -> int:
        """Return the expected number of steps: at least `least`, and beyond it within the step limit."""
        return max(least, min(self.planned or likely, self.params.max_steps))
