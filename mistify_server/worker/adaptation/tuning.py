"""Rounds of tuning, and their progress."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from typing import Final

from executors.data import Dataset
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer, cosine
from mistify.jobs.job import ProgressUpdate
from mistify_server.tasks.messages import OnProgress

#: Training steps between two reports of progress.
_REPORT_STEPS: Final = 50

#: Looks at the accuracy divide a round of tuning into so many parts.
_PARTS: Final = 4

#: Validation examples of a look. The looks of a round take less time than ten of its steps.
LOOK_EXAMPLES: Final = 500


def tune(trainer: Trainer, steps: int, report: Callable[[int], None]) -> None:
    """Train a network at a falling learning rate, and leave it at the average of its last weights."""
    schedule = cosine(steps)
    for start in range(0, steps, _REPORT_STEPS):
        trainer.train(schedule[start : start + _REPORT_STEPS])
        report(min(start + _REPORT_STEPS, steps))
    trainer.apply_average()


@dataclass(frozen=True)
class TuningReport:
    """Reports the progress of a round of tuning, and now and then looks at the accuracy on a sample.

    Looking changes nothing about the network. Its batch-norm statistics are the running ones.

    Attributes:
        report: Receives the progress.
        start: The progress at the start of the round.
        steps: Number of steps of the round.
        trainer: Tunes the network.
        setup: Provides the metric.
        sample: A sample of the validation data.
    """

    report: OnProgress
    start: ProgressUpdate
    steps: int
    trainer: Trainer
    setup: TrainingSetup
    sample: Dataset

    def __call__(self, done: int) -> None:
        """Report that so many steps of the round are done."""
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
        """Return the accuracy; None where the sample has too few classes."""
        accuracy = self.trainer.evaluation.score(self.sample, self.setup.metric)
        return accuracy if isfinite(accuracy) else None
