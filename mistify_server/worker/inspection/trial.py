"""Facts that narrow the forecast of a source: the amount of data, and a trial of tuning."""

from typing import Final

from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer
from mistify_server.tasks.estimates import EdgeEstimates, SourceTrial
from mistify_server.worker.adaptation.tuning import tune
from mistify_server.worker.inspection.estimates import EXAMPLES, sampled_scores

#: Duration of a trial in seconds. A network that finishes learning in this time needs no forecast.
_SECONDS: Final = 2.0

#: Minimum steps of a trial, regardless of time: networks hardly learn anything in fewer.
_LEAST_STEPS: Final = 20


def trial_of(trainer: Trainer, setup: TrainingSetup, estimates: EdgeEstimates, tested: int) -> SourceTrial:
    """Return the result of a trial, in which a copy of the source is tuned for a few seconds.

    Args:
        trainer: The trainer of the copy; it may have been traced already when the steps were timed.
        setup: The data and settings for training.
        estimates: Estimates with the duration of a step.
        tested: Number of test examples.
    """
    validation = setup.validation.sample(EXAMPLES)
    trial = SourceTrial(tested=tested, sampled=len(validation))
    affordable = int(_SECONDS / estimates.step_seconds) if estimates.step_seconds else 0
    steps = min(estimates.source_steps, max(affordable, _LEAST_STEPS))
    if not steps:
        return trial
    trainer.start_average()
    tune(trainer, steps, lambda _done: None)
    trainer.evaluation.recalibrate(setup.train, 0)
    accuracy, scores = sampled_scores(trainer.evaluation, validation, setup)
    return trial.model_copy(update={"steps": steps, "accuracy": accuracy, "scores": scores})
