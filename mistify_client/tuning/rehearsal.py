"""Rehearsal of a network's knowledge, to reduce forgetting when it is tuned on new data.

Z. Li and D. Hoiem, Learning without Forgetting, TPAMI 40 (12), 2018: the predictions of the untuned network
for the new inputs are a second target for them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mistify.package.manifest import Manifest
from mistify_client.examples import Examples
from mistify_client.runtime.inputs import Array
from mistify_client.tuning.trainer import PackageTrainer
from mistify_client.tuning.training_loop import Teacher, TeacherTargets, TrainingSettings


@dataclass(frozen=True)
class Rehearsal:
    """The predictions of a network for the tuning's examples, before tuning.

    Attributes:
        predictions: [examples, ...] by output.
        weight: Weight of these targets relative to the true ones.
    """

    predictions: Mapping[str, Array]
    weight: float

    def combined_with(
        self, teacher: Teacher | None, settings: TrainingSettings
    ) -> tuple[Teacher, TrainingSettings]:
        """Return a teacher that also teaches the earlier predictions, and settings with its weight.

        Args:
            teacher: A teacher from peers; None for no other teacher.
            settings: Settings of the training, with the weight of that teacher.
        """
        others = 0.0 if teacher is None else settings.kd_weight
        total = others + self.weight

        def both(rng: np.random.Generator) -> TeacherTargets:
            peers = None if teacher is None else teacher(rng)

            def targets(rows: npt.NDArray[np.int64]) -> Mapping[str, Array]:
                own = {name: predicted[rows] for name, predicted in self.predictions.items()}
                if peers is None:
                    return own
                taught = peers(rows)
                return {
                    name: ((others * taught[name] + self.weight * known) / total).astype(np.float32)
                    for name, known in own.items()
                }

            return targets

        return both, replace(settings, kd_weight=total)


def rehearsal_of(trainer: PackageTrainer, examples: Examples, settings: TrainingSettings) -> Rehearsal | None:
    """Return the rehearsal of a network in its current state; None if there is nothing to rehearse.

    Args:
        trainer: Runs the network.
    """
    weight = settings.rehearsal * _worth_keeping(trainer.manifest)
    if not weight:
        return None
    return Rehearsal(trainer.predictions(examples), weight)


def _worth_keeping(manifest: Manifest) -> float:
    """Return how much there is to forget, from 0 to 1: the package's accuracy; 1 for errors."""
    return manifest.accuracy if manifest.metric.is_share else 1.0
