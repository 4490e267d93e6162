"""Facts that narrow the forecast of a source: the amount of data, and a trial of tuning."""

from math import ceil
from typing import Final

from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer
from mistify.config.data.metric import Metric
from mistify_server.tasks.estimates import EdgeEstimates, SourceTrial
from mistify_server.worker.adaptation.tuning import tune
from mistify_server.worker.inspection.estimates import EXAMPLES, sampled_scores

#: Maximum duration of a trial in seconds. A network that finishes learning in this time needs no forecast.
_SECONDS: Final = 2.0

#: Share of a trial after which it ends if the network has not improved; most sources have been trained.
_SHARE: Final = 0.5

#: Minimum steps of a trial, regardless of time: networks hardly learn anything in fewer.
_LEAST_STEPS: Final = 20


def trial_of(trainer: Trainer, setup: TrainingSetup, estimates: EdgeEstimates, tested: int) -> SourceTrial:
    """Return the result of a trial, in which a copy of the source is tuned for a second or two.

    A source that makes no mistake is what tuning it would return, so that nothing is trained.

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
    if estimates.accuracy == setup.metric.perfect:  # such a source is not tuned (`tuned_source`)
        update = {"steps": estimates.source_steps, "accuracy": estimates.accuracy}
        return trial.model_copy(update={**update, "scores": estimates.output_scores})
    first = min(steps, max(ceil(_SHARE * steps), _LEAST_STEPS))
    for part in filter(None, (first, steps - first)):
        trainer.start_average()
        tune(trainer, part, lambda _done: None)
        trainer.evaluation.recalibrate(setup.train, 0)
        accuracy, scores = sampled_scores(trainer.evaluation, validation, setup)
        done = trial.steps + part
        trial = trial.model_copy(update={"steps": done, "accuracy": accuracy, "scores": scores})
        if _has_learned_all(setup.metric, estimates.accuracy, accuracy):
            break
    return trial


def _has_learned_all(metric: Metric, before: float | None, after: float | None) -> bool:
    """Check whether a network is no better after training; not if a figure is unknown."""
    return before is not None and after is not None and metric.reaches(before, after)
