"""Training until nothing is gained on held-out data (paper 5.1, steps (i) and (iii))."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mistify_client.examples import Examples
from mistify_client.runtime.inputs import Array
from mistify_client.tuning.augmentation import Augmentation
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
        seed: Seed for the order of the examples, the choice of skipped peers, and augmentation.
        augmentation: Random changes to images; `tune` chooses those that suit a network. With them, training
            takes all `most_passes`, and the learning rate falls from twice its value to 0 along half a cosine
            (Loshchilov and Hutter, SGDR, 2017). None trains on the examples as they are, until nothing is
            gained.
    """

    learning_rate: float = 1e-3
    patience: int = 5
    slowdowns: int = 1
    most_passes: int = 60
    kd_weight: float = 1.0
    rehearsal: float = 1.0
    seed: int = 0
    augmentation: Augmentation | None = None

    def with_peers(self) -> "TrainingSettings":
        """Return the settings of a round with peers.

        With augmentation, it takes half of the passes, because it starts from tuned weights.
        """
        return self if self.augmentation is None else replace(self, most_passes=-(-self.most_passes // 2))


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
    may be due to chance. If the learning rate falls to 0, the last weights are chosen if their accuracy is
    within a standard error of that before the training, whatever their loss: they are better than those on
    the way, by less than few examples can measure. Weights that are worse than the initial ones, in accuracy
    or in loss, never become the best.

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
        annealed = settings.augmentation is not None
        is_last = annealed and self.passes + 1 >= settings.most_passes
        sets_peak = counts and (is_last or not annealed)
        peak = max(self.peak, score.accuracy) if sets_peak else self.peak
        least = peak - math.sqrt(peak * (1 - peak) / self.examples)
        preferred = is_last or score.loss < self.best.loss or self.best.accuracy < least
        better = counts and preferred and score.accuracy >= least
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
        is_idle = after.idle >= settings.patience and not annealed
        if is_idle or not math.isfinite(score.loss):
            return replace(after, weights=self.best_weights, idle=0, slowed=self.slowed + 1)
        return after

    def has_converged(self, settings: TrainingSettings) -> bool:
        """Check whether the training has ended."""
        return self.slowed > settings.slowdowns or self.passes >= settings.most_passes

    def learning_rate(self, settings: TrainingSettings) -> float:
        """Return the learning rate of the next pass."""
        rate = settings.learning_rate * math.pow(_SLOWDOWN, -self.slowed)
        if settings.augmentation is None:
            return rate
        return rate * (1 + math.cos(math.pi * self.passes / settings.most_passes))


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
        this_pass = replace(settings, learning_rate=state.learning_rate(settings))
        _train_pass(trainer, data, this_pass, teacher_targets, rng)
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
    settings: TrainingSettings,
    teacher_targets: TeacherTargets | None,
    rng: np.random.Generator,
) -> None:
    """Train on all examples once in random order, except for an incomplete last batch.

    Args:
        trainer: Trains the network.
        data: Examples to train on.
        settings: The settings, with the learning rate of this pass.
        teacher_targets: The teacher's targets for this pass.
        rng: Draws the order and the changes to images.
    """
    size, augmentation, rate = trainer.training.batch_size, settings.augmentation, settings.learning_rate
    if augmentation is not None and trainer.training.optimizer == "sgd":
        rate /= 2  # the loss is doubled, to which Adam's steps are not proportional
    order = rng.permutation(data.training)
    for start in range(0, len(order) - size + 1, size):
        rows = order[start : start + size]
        examples = data.examples.subset(rows)
        teacher, kd_weight = None if teacher_targets is None else teacher_targets(rows), settings.kd_weight
        if augmentation is not None:
            examples, teacher, kd_weight = augmentation.augmented(examples, teacher, kd_weight, rng)
        trainer.train_step(examples.inputs, examples.targets, rate, teacher, kd_weight)


def score_of(trainer: PackageTrainer, examples: Examples) -> Score:
    """Return the score of the network on any number of examples."""
    parts = [(len(chunk), trainer.evaluate(chunk.inputs, chunk.targets)) for chunk in examples.chunks(_CHUNK)]
    counted = sum(part.counted for _, part in parts)
    accuracy = sum(part.correct for _, part in parts) / counted if counted else 0.0
    loss = sum(count * part.loss for count, part in parts) / len(examples)
    return Score(accuracy, loss if math.isfinite(loss) else math.inf)
