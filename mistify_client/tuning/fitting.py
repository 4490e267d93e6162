"""Training until nothing is gained on data that are set apart (paper 5.1, steps (i) and (iii))."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mistify_client.runtime.inputs import Array
from mistify_client.tuning.examples import Examples, Split
from mistify_client.tuning.trainer import Trainer, Weights

#: By which steps become smaller.
_SLOWDOWN = 3.0

#: Examples that are evaluated at a time.
_CHUNK = 256


class Score(NamedTuple):
    """How a network does: the share of examples that it tells right (0 where all are figures), the loss."""

    accuracy: float
    loss: float


@dataclass(frozen=True)
class Pace:
    """How a network is trained.

    Attributes:
        learning_rate: at first; the paper's is 0.001.
        patience: passes without gain after which steps become smaller.
        slowdowns: how often they do, to a third and from the best weights on, before it has converged.
        most_passes: through the data, whatever is gained.
        kd_weight: how much teachers count beside the targets.
        seed: of the order of examples, and of which peers are skipped.
    """

    learning_rate: float = 1e-3
    patience: int = 5
    slowdowns: int = 1
    most_passes: int = 60
    kd_weight: float = 1.0
    seed: int = 0


class Lesson(Protocol):
    """What a teacher says of some rows of the data, by output."""

    def __call__(self, rows: npt.NDArray[np.int64]) -> Mapping[str, Array]:
        """Probabilities [rows, ...]."""


#: Gives the lesson of a pass: peers are skipped at random in each.
Teacher = Callable[[np.random.Generator], Lesson]


@dataclass(frozen=True)
class Course:
    """How far a training has come, after a pass through the data.

    The best weights are those with the lowest loss among all whose accuracy is within a standard error of the
    highest (Breiman et al., 1984): few examples tell accuracies apart badly, and the highest of many may be
    chance. Nothing counts that is worse in either than the network was at first.

    Attributes:
        best: the score of the best weights.
        best_weights: those of the start included.
        weights: the last ones.
        floor: the score of the network before any tuning.
        peak: the highest accuracy that counts.
        lowest: the lowest loss so far.
        examples: by how many scores are told.
        passes: how many there were.
        idle: how many of the last ones gained nothing, neither a better score nor a lower loss.
        slowed: how often steps became smaller for that.
    """

    best: Score
    best_weights: Weights
    weights: Weights
    floor: Score
    peak: float
    lowest: float
    examples: int
    passes: int = 0
    idle: int = 0
    slowed: int = 0

    @classmethod
    def begun(cls, score: Score, weights: Weights, floor: Score, examples: int) -> "Course":
        """Before the first pass."""
        return cls(score, weights, weights, floor, score.accuracy, score.loss, examples)

    def after(self, score: Score, weights: Weights, pace: Pace) -> "Course":
        """After one more pass."""
        counts = score.accuracy >= self.floor.accuracy and score.loss <= self.floor.loss
        peak = max(self.peak, score.accuracy) if counts else self.peak
        least = peak - math.sqrt(peak * (1 - peak) / self.examples)
        lower = score.loss < self.best.loss or self.best.accuracy < least
        better = counts and lower and score.accuracy >= least
        gained = better or score.loss < self.lowest or peak > self.peak
        after = replace(
            self,
            weights=weights,
            peak=peak,
            lowest=min(score.loss, self.lowest),
            passes=self.passes + 1,
            idle=0 if gained else self.idle + 1,
        )
        if better:
            return replace(after, best=score, best_weights=weights)
        if after.idle >= pace.patience or not math.isfinite(score.loss):
            return replace(after, weights=self.best_weights, idle=0, slowed=self.slowed + 1)
        return after

    def has_converged(self, pace: Pace) -> bool:
        """Whether it is over."""
        return self.slowed > pace.slowdowns or self.passes >= pace.most_passes

    def learning_rate(self, pace: Pace) -> float:
        """Of the next pass."""
        return pace.learning_rate * math.pow(_SLOWDOWN, -self.slowed)


def fit(
    trainer: Trainer,
    data: Split,
    pace: Pace,
    course: Course,
    *,
    after_pass: Callable[[Course, Score], None],
    teacher: Teacher | None = None,
) -> Course:
    """Train until convergence, from wherever a course is; the trainer ends with the best weights.

    Args:
        trainer: of the network.
        data: what is trained on, and what tells when to stop.
        pace: how.
        course: begun, or broken off after some pass.
        after_pass: is told the course and the score of its last weights, after every pass.
        teacher: what else is learned from than the targets.
    """
    trainer.restore(course.weights)
    while not course.has_converged(pace):
        rng = np.random.default_rng([pace.seed, course.passes])
        lesson = None if teacher is None else teacher(rng)
        _pass(trainer, data, (course.learning_rate(pace), pace.kd_weight), lesson, rng)
        score, slowed = score_of(trainer, data.held_out), course.slowed
        course = course.after(score, trainer.weights(), pace)
        if course.slowed > slowed:
            trainer.restore(course.weights)
        after_pass(course, score)
    trainer.restore(course.best_weights)
    return course


def _pass(
    trainer: Trainer, data: Split, rates: tuple[float, float], lesson: Lesson | None, rng: np.random.Generator
) -> None:
    """All examples once in random order, but for those that do not fill a step.

    Args:
        trainer: of the network.
        data: whose examples.
        rates: how far a step goes, and how much the teacher counts.
        lesson: of the teacher.
        rng: for the order.
    """
    size = trainer.training.batch_size
    learning_rate, kd_weight = rates
    order = rng.permutation(data.training)
    for start in range(0, len(order) - size + 1, size):
        rows = order[start : start + size]
        batch = data.examples.subset(rows)
        taught = None if lesson is None else lesson(rows)
        trainer.train_step(batch.inputs, batch.targets, learning_rate, taught, kd_weight)


def score_of(trainer: Trainer, examples: Examples) -> Score:
    """How the network does on examples, as many as there are."""
    parts = [(len(chunk), trainer.evaluate(chunk.inputs, chunk.targets)) for chunk in examples.chunks(_CHUNK)]
    counted = sum(part.counted for _, part in parts)
    accuracy = sum(part.correct for _, part in parts) / counted if counted else 0.0
    loss = sum(count * part.loss for count, part in parts) / len(examples)
    return Score(accuracy, loss if math.isfinite(loss) else math.inf)
