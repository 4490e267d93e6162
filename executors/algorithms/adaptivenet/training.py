"""The two stages of supernet training (AdaptiveNet 4.2)."""

import io
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import keras
import numpy as np

from executors.algorithms.adaptivenet.block_distillation import BlockDistillation
from executors.algorithms.adaptivenet.params import AdaptiveNetParams
from executors.algorithms.adaptivenet.sampling import PathSampler
from executors.algorithms.adaptivenet.selection import Scorer
from executors.algorithms.adaptivenet.single_path import SinglePathObjective
from executors.algorithms.adaptivenet.supernet import Supernet
from executors.contract.assignment import Assignment
from executors.contract.preparation import PreparationProgress
from executors.data import Dataset
from executors.structure import Structure, model_of
from executors.training.evaluation import Evaluation
from executors.training.objective import TrainingObjective
from executors.training.optimizers import ADAM, rate_for_adam
from executors.training.trainer import OptimizerState, Trainer, cosine

#: Parts of a stage, after each of which training can be resumed, and steps between progress reports.
_PARTS: Final = 8
_REPORT_STEPS: Final = 100

#: Name of the stored training state.
_PART: Final = "supernet"


@dataclass(frozen=True)
class _Progress:
    """The progress of a supernet's training.

    Attributes:
        done: Number of steps so far.
        losses: Loss of each variant at the start of path training; empty before that.
        optimizer_state: The trainer's state apart from the weights; None at the start of a stage.
    """

    done: int = 0
    losses: tuple[float, ...] = ()
    optimizer_state: OptimizerState | None = None

    def saved(self, supernet: Supernet) -> bytes:
        """Return the progress and the supernet, serialized."""
        file = io.BytesIO()
        arrays: dict[str, Any] = self.optimizer_state.flat() if self.optimizer_state else {}
        content = np.frombuffer(supernet.saved(self.losses), np.uint8)
        np.savez(file, supernet=content, done=np.array(self.done), **arrays)
        return file.getvalue()

    @classmethod
    def loaded(cls, part: bytes, source: Structure, largest: float) -> tuple[Supernet, Self]:
        """Load a saved supernet and its progress."""
        with np.load(io.BytesIO(part), allow_pickle=False) as arrays:
            supernet, losses = Supernet.loaded(arrays["supernet"].tobytes(), source, largest)
            return supernet, cls(int(arrays["done"]), tuple(losses), OptimizerState.from_flat(dict(arrays)))


#: Adam's learning rates in the two stages. In the second one, the settings may override it: by then variants
#: are close to the blocks that they replace. With gradient descent, networks with frozen batch norms fell to
#: chance level.
_DISTIL_RATE: Final = 5e-3
_PATH_RATE: Final = 1e-3

#: The share of a batch used for distilling features: each of the many positions of an image or a text counts
#: as an example.
_DISTIL_SHARE: Final = 1 / 4

#: Training examples for calibrating the variants' batch norms.
_CALIBRATED: Final = 500


class SupernetTraining:
    """The training of a supernet: variants first learn to replace blocks, then to work together on paths.

    Args:
        supernet: The supernet with its current weights.
        assignment: Provides source, data and seed.
        progress: Receives the progress and the finished parts.
        state: Where the training starts or continues.
    """

    def __init__(
        self,
        supernet: Supernet,
        assignment: Assignment,
        params: AdaptiveNetParams,
        progress: PreparationProgress,
        state: _Progress,
    ) -> None:
        self._supernet = supernet
        self._assignment = assignment
        self._params = params
        self._progress = progress
        self._state = state

    @classmethod
    def of(
        cls, assignment: Assignment, params: AdaptiveNetParams, progress: PreparationProgress
    ) -> Self | None:
        """Return the training so far; None if no block of the source can be replaced."""
        source, part = assignment.source, progress.part(_PART)
        if part:
            supernet, state = _Progress.loaded(part, source, params.largest)
            return cls(supernet, assignment, params, progress, state)
        expanded = Supernet.expanded(source, params, assignment.setup.train)
        return None if expanded is None else cls(expanded, assignment, params, progress, _Progress())

    def finished(self) -> bytes:
        """Train to the end, and return the supernet with the loss of each variant."""
        distil, setup, seed = self._params.distil_steps, self._assignment.setup, self._assignment.seed
        batch_size = setup.params.batch_size
        part_of_batch = max(1, round(_DISTIL_SHARE * batch_size))
        self._train(BlockDistillation(self._supernet, setup), 0, distil, _DISTIL_RATE, part_of_batch)
        if self._state.done == distil:
            Evaluation(self._supernet.model).recalibrate(self._features())
        source = model_of(self._assignment.source.graph)
        if not self._state.losses:
            losses = self._losses(Scorer(self._supernet, source, setup))
            self._state = replace(self._state, losses=tuple(losses))
            self._keep(self.worthwhile(losses))
        scorer, space = Scorer(self._supernet, source, setup), self._supernet.space
        with _frozen_norms(self._supernet.model):
            sampler = PathSampler(space, self.costs(), self._state.losses)
            objective = SinglePathObjective(self._supernet, sampler.draw, source, setup, seed)
            rate = rate_for_adam(self._params, _PATH_RATE)
            self._train(objective, distil, self._params.path_steps, rate, batch_size)
        return self._supernet.saved(self._losses(scorer))

    def costs(self) -> Sequence[float]:
        """Return the cost of each variant, by which paths are drawn for training."""
        return self._supernet.multiply_adds()

    def worthwhile(self, losses: Sequence[float]) -> Collection[int]:
        """Return the variants that are trained on paths and packaged, at least one.

        Each has more training steps the fewer there are, and each step takes less time. So variants that
        hardly any goal would need are dropped.

        Args:
            losses: Loss added by each variant alone, after distillation.
        """
        sampler = PathSampler(self._supernet.space, self.costs(), losses)
        return sampler.needed(np.random.default_rng(self._assignment.seed))

    def _keep(self, numbers: Collection[int]) -> None:
        """Drop all variants except some of them."""
        losses, blocks = self._state.losses, self._supernet.space.blocks
        kept = [number for number in range(len(losses)) if number < blocks or number in numbers]
        if len(kept) < len(losses):
            source, largest = self._assignment.source, self._params.largest
            self._supernet = self._supernet.keeping(kept, source, largest)
            self._state = replace(self._state, losses=tuple(losses[number] for number in kept))

    def _losses(self, scorer: Scorer) -> list[float]:
        """Return the loss of each variant alone; the network's own blocks come first, with a loss of 0."""
        return [0.0] * self._supernet.space.blocks + scorer.divergences_alone()

    def _train(
        self, objective: TrainingObjective, first: int, steps: int, rate: float, batch_size: int
    ) -> None:
        """Train with an objective, resuming at the last step.

        Args:
            objective: The objective of one stage.
            first: Number of steps of earlier stages.
            steps: Number of steps of this stage.
            rate: The highest learning rate.
            batch_size: Examples per step.
        """
        end, total = first + steps, self._params.distil_steps + self._params.path_steps
        if self._state.done >= end:
            return
        setup, schedule, part = self._assignment.setup, cosine(steps), -(-steps // _PARTS)
        own = {"optimizer": ADAM, "learning_rate": rate, "batch_size": batch_size}
        params = setup.params.model_copy(update=own)
        seed = self._assignment.seed
        trainer = Trainer(self._supernet.model, replace(setup, params=params), seed, objective=objective)
        while (done := self._state.done) < end:
            # Restart each part as after an interruption, so that both cases end with the same weights.
            trainer.restart(seed + done, self._state.optimizer_state)
            part_end = min(done + part, end)
            while done < part_end:
                after = min(done + _REPORT_STEPS, part_end)
                loss = trainer.train(schedule[done - first : after - first])
                done = after
                self._progress.report(done, total, loss)
            if done == end:
                trainer.apply_average()
            optimizer_state = None if done == end else trainer.optimizer_state()
            self._state = replace(self._state, done=done, optimizer_state=optimizer_state)
            self._progress.keep(_PART, self._state.saved(self._supernet))

    def _features(self) -> Dataset:
        """Return examples of the variants' inputs."""
        count = self._supernet.examples_kept(_CALIBRATED)
        inputs = self._assignment.setup.train.sample(count).inputs
        features = [np.asarray(tensor) for tensor in self._supernet.features(inputs)]
        return Dataset(self._supernet.inputs_from(features), {})


@contextmanager
def _frozen_norms(model: keras.Model) -> Iterator[None]:
    """Freeze batch norms inside the `with` block, as in packaged blocks."""
    norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    for norm in norms:
        norm.trainable = False
    try:
        yield
    finally:
        for norm in norms:
            norm.trainable = True  # all were trainable: frozen layers have no variants
