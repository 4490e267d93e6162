"""The two stages in which a supernet is trained (AdaptiveNet 3.2)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Self

import keras
import numpy as np

from executors.adaptivenet.lessons import FeatureLesson, PathLesson
from executors.adaptivenet.sampling import PathSampler
from executors.adaptivenet.selection import Scorer
from executors.adaptivenet.supernet import Supernet
from executors.base import Assignment
from executors.data import Dataset
from executors.params import AdaptiveNetParams
from executors.preparing import PreparationProgress
from executors.structure import built
from executors.training.evaluation import Evaluation
from executors.training.lessons import Lesson
from executors.training.optimizers import ADAM
from executors.training.trainer import Trainer, cosine

#: Parts of a stage after each of which its training can be taken up again, and steps between two reports.
_PARTS: Final = 8
_REPORT_STEPS: Final = 100

#: What is kept of the training.
_PART: Final = "supernet"

#: Learning rates of Adam in the two stages, in the second one unless the settings have one: by then variants
#: are near to what they replace. With gradient descent, networks whose batch norms are frozen fell to chance.
_DISTIL_RATE: Final = 5e-3
_PATH_RATE: Final = 1e-3

#: The share of a batch that features are learned on: each of the many positions of an image or a text is an
#: example of them.
_DISTIL_SHARE: Final = 1 / 4

#: Training examples that tell the statistics of the variants' batch norms.
_CALIBRATED: Final = 500


class SupernetTraining:
    """The training of a supernet: variants learn what the blocks compute that they replace, then paths.

    Args:
        supernet: With the weights so far.
        assignment: Has the source, data and seed.
        params: Settings.
        progress: Takes the progress and the parts that are done.
        done: Steps so far.
    """

    def __init__(
        self,
        supernet: Supernet,
        assignment: Assignment,
        params: AdaptiveNetParams,
        progress: PreparationProgress,
        done: int,
    ) -> None:
        self._supernet = supernet
        self._assignment = assignment
        self._params = params
        self._progress = progress
        self._done = done

    @classmethod
    def of(
        cls, assignment: Assignment, params: AdaptiveNetParams, progress: PreparationProgress
    ) -> Self | None:
        """Return the training as far as it has come; None where no block of the source can be replaced."""
        source, part = assignment.source, progress.part(_PART)
        if part:
            supernet, (done,) = Supernet.loaded(part, source, params.largest)
            return cls(supernet, assignment, params, progress, int(done))
        expanded = Supernet.expanded(source, params, assignment.setup.train)
        return None if expanded is None else cls(expanded, assignment, params, progress, 0)

    def finished(self) -> bytes:
        """Train to the end, and return the supernet with what each of its variants loses."""
        distil, setup, seed = self._params.distil_steps, self._assignment.setup, self._assignment.seed
        batch_size = setup.params.batch_size
        part_of_batch = max(1, round(_DISTIL_SHARE * batch_size))
        self._train(FeatureLesson(self._supernet, setup), 0, distil, _DISTIL_RATE, part_of_batch)
        if self._done == distil:
            Evaluation(self._supernet.model).recalibrate(self._features())
        source, space = built(self._assignment.source.graph), self._supernet.space
        scorer = Scorer(self._supernet, source, setup)
        with _frozen_norms(self._supernet.model):
            sampler = PathSampler(space, self._supernet.multiply_adds(), self._losses(scorer))
            lesson = PathLesson(self._supernet, sampler.draw, source, setup, seed)
            rate = self._params.learning_rate or _PATH_RATE
            self._train(lesson, distil, self._params.path_steps, rate, batch_size)
        return self._supernet.saved(self._losses(scorer))

    def _losses(self, scorer: Scorer) -> list[float]:
        """Return what each variant loses by itself; the blocks of the network itself come first, at 0."""
        space = self._supernet.space
        variants = range(space.blocks, len(space.places))
        return [0.0] * space.blocks + [scorer.lost(space.with_one(number)) for number in variants]

    def _train(self, lesson: Lesson, first: int, steps: int, rate: float, batch_size: int) -> None:
        """Train with a lesson, from where it was left off.

        Args:
            lesson: What is learned.
            first: The steps before its own.
            steps: Its own.
            rate: The highest learning rate.
            batch_size: Examples of a step.
        """
        end, total = first + steps, self._params.distil_steps + self._params.path_steps
        if self._done >= end:
            return
        setup, schedule, part = self._assignment.setup, cosine(steps), -(-steps // _PARTS)
        own = {"optimizer": ADAM, "learning_rate": rate, "batch_size": batch_size}
        params = setup.params.model_copy(update=own)
        seed = self._assignment.seed + self._done  # other batches after an interruption
        trainer = Trainer(self._supernet.model, replace(setup, params=params), seed, lesson=lesson)
        while self._done < end:
            part_end = min(self._done + part, end)
            while self._done < part_end:
                after = min(self._done + _REPORT_STEPS, part_end)
                loss = trainer.train(schedule[self._done - first : after - first])
                self._done = after
                self._progress.report(after, total, loss)
            if self._done == end:
                trainer.settle()
            self._progress.keep(_PART, self._supernet.saved([self._done]))

    def _features(self) -> Dataset:
        """Return examples of what the variants read."""
        count = self._supernet.examples_kept(_CALIBRATED)
        inputs = self._assignment.setup.train.sample(count).inputs
        features = [np.asarray(tensor) for tensor in self._supernet.features(inputs)]
        return Dataset(self._supernet.inputs_from(features), {})


@contextmanager
def _frozen_norms(model: keras.Model) -> Iterator[None]:
    """Let batch norms be what they are in packaged blocks in the block, whatever stands before them."""
    norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    for norm in norms:
        norm.trainable = False
    try:
        yield
    finally:
        for norm in norms:
            norm.trainable = True  # as they all were: what is frozen in the network has no variants
