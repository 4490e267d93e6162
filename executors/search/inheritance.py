"""The quality of candidates with the weights of the network from which they are cut, without training."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, log
from typing import Final

import numpy as np
import numpy.typing as npt

from executors.data import Dataset
from executors.outputs.objectives import SMALLEST, objectives_of
from executors.pruning.masks import Masks
from executors.pruning.reconstruction import Compensation, Moments
from executors.pruning.state import PruningState
from executors.search.space import Architecture
from executors.structure import Keep, Structure, narrow
from executors.training.evaluation import Evaluation
from executors.training.setup import TrainingSetup
from mistify.config.data.dataset import DataSettings

#: Training examples for calibrating batch norms, and validation examples for measuring candidates.
_EXAMPLES: Final = 500

#: The loss of a candidate with outputs that overflow.
_WORST_LOSS: Final = 1e6


@dataclass(frozen=True)
class Inheritance:
    """A network from which candidates are cut; it is restored after each of them.

    Attributes:
        masks: The units that are left.
        compensation: Adjusts the remaining units to compensate for the cut ones.
        moments: The moments used to fit the remaining units.
        evaluation: Evaluates the network.
        values: Group -> worth of each unit [units].
        setup: Provides the data for calibration and measurement.
    """

    structure: Structure
    masks: Masks
    compensation: Compensation
    moments: Mapping[int, Moments]
    evaluation: Evaluation
    values: Mapping[str, npt.NDArray[np.float64]]
    setup: TrainingSetup

    @classmethod
    def of(cls, state: PruningState) -> "Inheritance":
        """Return the inheritance of a network in its current state."""
        moments = state.compensation.moments(state.assignment.setup.train)
        return cls(
            state.structure,
            state.masks,
            state.compensation,
            moments,
            state.trainer.evaluation,
            state.values(moments),
            state.assignment.setup,
        )

    def keep(self, architecture: Architecture) -> Keep:
        """Return the most valuable units of each group."""
        keep = {}
        for name, values in self.values.items():
            left = self.masks.keep[name]
            order = np.argsort(np.where(left, -values, np.inf), kind="stable")
            keep[name] = np.isin(np.arange(len(left)), order[: architecture.widths[name]])
        return keep

    def quality(self, architecture: Architecture, structure: Structure) -> float:
        """Return the quality of a candidate: the negative logarithm of its loss on examples.

        The loss distinguishes candidates whose accuracy is no better than chance.

        Args:
            structure: The structure without the blocks that the candidate lacks, at its resolution.
        """
        calibration, validation = self._examples
        with self._cut(self.keep(architecture)):
            evaluation = self.evaluation
            if structure is not self.structure:
                keep = {name: self.masks.keep[name] for name in structure.groups}
                evaluation = Evaluation(narrow(structure, keep))
            evaluation.recalibrate(calibration)
            outputs = evaluation.outputs(validation.inputs)
        losses = DataSettings(losses=self.setup.settings.losses)
        objectives = objectives_of(evaluation.model, validation, losses)
        targets = validation.targets
        loss = sum(
            float(objective.loss(outputs[name], targets[name])) for name, objective in objectives.items()
        )
        finite = min(loss, _WORST_LOSS) if isfinite(loss) else _WORST_LOSS
        return -log(max(finite, SMALLEST))

    @contextmanager
    def _cut(self, keep: Keep) -> Iterator[None]:
        """Reduce the network to these units inside the block; then restore it."""
        before = self.masks.keep
        variables = [variable for own in self.structure.graph.variables.values() for variable in own]
        weights = [variable.numpy() for variable in variables]
        try:
            self.compensation.apply(before, keep, self.moments)
            self.masks.set(keep)
            yield
        finally:
            self.masks.set(before)
            for variable, weight in zip(variables, weights, strict=True):
                variable.assign(weight)

    @cached_property
    def _examples(self) -> tuple[Dataset, Dataset]:
        """Return training examples for calibration, and validation examples for measurement."""
        rng = np.random.default_rng(0)
        train, validation = self.setup.train, self.setup.validation
        calibration = train.subset(rng.permutation(len(train))[:_EXAMPLES])
        return calibration, validation.subset(rng.permutation(len(validation))[:_EXAMPLES])
