"""Facts that narrow the forecast of a source: how many data there are, and a trial of tuning it."""

from typing import Final

from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer
from mistify_server.tasks.estimates import EdgeEstimates, SourceTrial
from mistify_server.worker.adaptation.tuning import tune
from mistify_server.worker.inspection.estimates import EXAMPLES, sampled_scores

#: Of a trial. A network that learns in this time what it will need no forecast to learn.
_SECONDS: Final = 2.0

#: The least steps of a trial, however long they take: in fewer, hardly a network learns anything.
_LEAST_STEPS: Final = 20


def trial_of(trainer: Trainer, setup: TrainingSetup, estimates: EdgeEstimates, tested: int) -> SourceTrial:
    """Return the trial of a source whose steps have been timed; a copy of it is tuned for some seconds.

    Args:
        trainer: The trainer of the copy, which it changes; it may have timed the steps, so that it is traced
            already.
        setup: The data and settings of the copy's training.
        estimates: Estimates with the time of a step.
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
