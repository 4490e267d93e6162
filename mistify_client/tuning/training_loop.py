"""Training until nothing is gained on held-out data (paper 5.1, steps (i) and (iii))."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mistify_client.examples import Examples
from mistify_client.runtime.inputs import Array
from mistify_client.tuning.examples import Split
from mistify_client.tuning.trainer import PackageTrainer, Weights

#: The factor by which the learning rate is lowered.
_SLOWDOWN = 3.0

#: Examples per batch of an evaluation.
_CHUNK = 256


class Score(NamedTuple):
    """The accuracy of a network, from 0 to 1 (0 if all outputs are numeric), and its loss."""

    accuracy: float
    loss: float


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of a training.

    Attributes:
        learning_rate: Initial learning rate; the paper's is 0.001.
        patience: Passes without gain after which the learning rate is lowered.
        slowdowns: Number of times that the learning rate is lowered, each time to a third and from the best
            weights, before the training counts as converged.
        most_passes: Maximum number of passes through the data.
        kd_weight: The weight of the teacher's targets relative to the true ones.
        rehearsal: The weight of the network's earlier predictions, to reduce forgetting, for a package with
            an accuracy of 1; it is reduced for lower accuracies, where there is less to forget. 0 for none.
        seed: Seed for the order of the examples, and the choice of skipped peers.
    """

    learning_rate: float = 1e-3
    patience: int = 5
    slowdowns: int = 1
    most_passes: int = 60
    kd_weight: float = 1.0
    rehearsal: float = 1.0
    seed: int = 0


class TeacherTargets(Protocol):
    """The predictions of a teacher that serve as targets, by output."""

    def __call__(self, rows: npt.NDArray[np.int64]) -> Mapping[str, Array]:
        """Return the targets for rows of the data: probabilities or numeric values, [rows, ...] by output."""


#: Returns the targets for one pass; each pass skips peers at random.
Teacher = Callable[[np.random.Generator], TeacherTargets]


@dataclass(frozen=True)
class TrainingState:
    """The state of a training after a pass through the data.

    The best weights are those with the lowest loss among all whose accuracy is within a standard error of the
    highest (Breiman et al., 1984): few examples measure accuracy imprecisely, and the highest of many values
    may be due to chance. Weights that are worse than the initial ones, in accuracy or in loss, never become
    the best.

    Attributes:
        best: The score of the best weights.
        best_weights: The weights with the best score, including the initial ones.
        weights: The current weights, from which the next pass starts.
        floor: The score of the network before any tuning.
        peak: The highest accuracy that counts.
        lowest: The lowest loss so far.
        examples: The number of examples for the scores.
        passes: The number of passes so far.
        idle: Number of consecutive passes without gain, neither a better score nor a lower loss.
        slowed: Number of times that the learning rate was lowered.
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
    def initial(cls, score: Score, weights: Weights, floor: Score, examples: int) -> "TrainingState":
        """Return the state before the first pass.

        Args:
            score: The score of the initial weights.
            weights: The initial weights.
            floor: The score of the network before any tuning.
            examples: The number of examples for the scores.
        """
        return cls(score, weights, weights, floor, score.accuracy, score.loss, examples)

    def after(self, score: Score, weights: Weights, settings: TrainingSettings) -> "TrainingState":
        """Return the state after one more pass.

        Args:
            score: The score of the new weights.
        """
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
        if after.idle >= settings.patience or not math.isfinite(score.loss):
            return replace(after, weights=self.best_weights, idle=0, slowed=self.slowed + 1)
        return after

    def has_converged(self, settings: TrainingSettings) -> bool:
        """Check whether the training has ended."""
        return self.slowed > settings.slowdowns or self.passes >= settings.most_passes

    def learning_rate(self, settings: TrainingSettings) -> float:
        """Return the learning rate of the next pass."""
        return settings.learning_rate * math.pow(_SLOWDOWN, -self.slowed)


def fit(
    trainer: PackageTrainer,
    data: Split,
    settings: TrainingSettings,
    state: TrainingState,
    *,
    after_pass: Callable[[TrainingState, Score], None],
    teacher: Teacher | None = None,
) -> TrainingState:
    """Train until convergence, from the start or from an interrupted training.

    At the end the trainer has the best weights.

    Args:
        trainer: Trains the network.
        data: Examples for training and for early stopping.
        state: The state to start from.
        after_pass: Called after every pass, with the state and the score of the new weights.
        teacher: A teacher in addition to the true targets.

    Returns:
        The state after convergence.
    """
    trainer.restore(state.weights)
    while not state.has_converged(settings):
        rng = np.random.default_rng([settings.seed, state.passes])
        teacher_targets = None if teacher is None else teacher(rng)
        _train_pass(trainer, data, (state.learning_rate(settings), settings.kd_weight), teacher_targets, rng)
        score, slowed = score_of(trainer, data.held_out), state.slowed
        state = state.after(score, trainer.weights(), settings)
        if state.slowed > slowed:
            trainer.restore(state.weights)
        after_pass(state, score)
    trainer.restore(state.best_weights)
    return state


def _train_pass(
    trainer: PackageTrainer,
    data: Split,
    rates: tuple[float, float],
    teacher_targets: TeacherTargets | None,
    rng: np.random.Generator,
) -> None:
    """Train on all examples once in random order, except for an incomplete last batch.

    Args:
        trainer: Trains the network.
        data: Examples to train on.
        rates: The learning rate, and the weight of the teacher's targets.
        teacher_targets: The teacher's targets for this pass.
        rng: Draws the order.
    """
    size = trainer.training.batch_size
    learning_rate, kd_weight = rates
    order = rng.permutation(data.training)
    for start in range(0, len(order) - size + 1, size):
        rows = order[start : start + size]
        batch = data.examples.subset(rows)
        teacher = None if teacher_targets is None else teacher_targets(rows)
        trainer.train_step(batch.inputs, batch.targets, learning_rate, teacher, kd_weight)


def score_of(trainer: PackageTrainer, examples: Examples) -> Score:
    """Return the score of the network on any number of examples."""
    parts = [(len(chunk), trainer.evaluate(chunk.inputs, chunk.targets)) for chunk in examples.chunks(_CHUNK)]
    counted = sum(part.counted for _, part in parts)
    accuracy = sum(part.correct for _, part in parts) / counted if counted else 0.0
    loss = sum(count * part.loss for count, part in parts) / len(examples)
    return Score(accuracy, loss if math.isfinite(loss) else math.inf)
