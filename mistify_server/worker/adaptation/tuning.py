"""Rounds of tuning, and their progress."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import isfinite
from typing import Final

from executors.contract.assignment import Assignment
from executors.contract.executor import AdaptationExecutor
from executors.contract.params import Params
from executors.data import Dataset
from executors.training.evaluation import Evaluation
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer, cosine
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS, PARAMS
from mistify.jobs.job import ProgressUpdate
from mistify.jobs.tuning_steps import needed_steps
from mistify_server.tasks.messages import OnProgress

#: Training steps between progress reports.
_REPORT_STEPS: Final = 50

#: Number of parts into which accuracy checks divide a round of tuning.
_PARTS: Final = 4

#: Validation examples per accuracy check. The checks in a round take less time than ten of its steps.
CHECK_EXAMPLES: Final = 500


def tune(trainer: Trainer, steps: int, report: Callable[[int], None]) -> None:
    """Train a network with a decaying learning rate, and set it to the average of its last weights."""
    schedule = cosine(steps)
    for start in range(0, steps, _REPORT_STEPS):
        trainer.train(schedule[start : start + _REPORT_STEPS])
        report(min(start + _REPORT_STEPS, steps))
    trainer.apply_average()


def steps_of_first_round(
    executor: AdaptationExecutor, assignment: Assignment, params: Params, sample: Dataset
) -> int:
    """Return the number of steps of the first round of tuning.

    Args:
        sample: A sample of the validation data.
    """
    costs, whole = executor.measure(), costs_of(assignment.source.network())
    is_cut = any(costs[axis] != whole[axis] for axis in (FLOPS, PARAMS))  # latencies are corrected meanwhile
    if is_cut:
        return params.tune_steps
    return steps_of_uncut(executor.trainer.evaluation, assignment, params, sample)


def steps_of_uncut(evaluation: Evaluation, assignment: Assignment, params: Params, sample: Dataset) -> int:
    """Return the number of steps of the first round of tuning for a network from which nothing was cut.

    Args:
        sample: A sample of the validation data.
    """
    steps = params.tune_steps
    if not (steps and assignment.setup.has_validation_labels):
        return steps
    source_steps = params.source_steps if assignment.task is None else 0
    return needed_steps(steps, evaluation.nats(sample), source_steps, is_cut=False)


def rounds(taken: int, params: Params, first: int, factor: int) -> Iterator[int]:
    """Yield the number of steps in each round of tuning: at least one round, and more up to the step limit.

    Args:
        taken: Number of steps so far.
        first: Number of steps in the first round.
        factor: Ratio of the lengths of successive rounds, apart from a first one without steps.
    """
    length, following = first, params.tune_steps * factor
    while True:
        steps = min(length, max(params.max_steps - taken, 0))
        yield steps
        taken, length, following = taken + steps, following, factor * following
        if not params.tune_steps or taken >= params.max_steps:
            return


@dataclass(frozen=True)
class TuningReport:
    """Reports the progress of a round of tuning, and periodically checks the accuracy on a sample.

    Checks do not change the network. They use the running batch-norm statistics.

    Attributes:
        report: Receives the progress.
        start: The progress at the start of the round.
        steps: Number of steps in the round.
        sample: A sample of the validation data.
    """

    report: OnProgress
    start: ProgressUpdate
    steps: int
    trainer: Trainer
    setup: TrainingSetup
    sample: Dataset

    def __call__(self, done: int) -> None:
        """Report the number of completed steps in the round."""
        self.report(
            replace(
                self.start,
                step=self.start.step + done,
                loss=self.trainer.loss,
                accuracy=self._look() if self._is_due(done) else None,
            )
        )

    def _is_due(self, done: int) -> bool:
        part = self.steps // _PARTS
        return _REPORT_STEPS <= part <= done < self.steps and done % part < _REPORT_STEPS

    def _look(self) -> float | None:
        """Return the accuracy; None if the sample has too few classes."""
        accuracy = self.trainer.evaluation.score(self.sample, self.setup.metric)
        return accuracy if isfinite(accuracy) else None
