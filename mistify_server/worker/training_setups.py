"""Training setups: the data of a task and the teacher's predictions."""

from collections.abc import Mapping
from typing import NamedTuple

from executors.contract.params import Params
from executors.data import Array, Dataset
from executors.outputs.objectives import objectives_of, predictions, with_unlabelled
from executors.structure.signature import signature_of
from executors.training.augmentation import mirrored
from executors.training.evaluation import Evaluation
from executors.training.setup import TrainingSetup
from mistify_server.tasks.recipe import TaughtRecipe
from mistify_server.worker.cache import DataPart, DataVersion, LearningData, SourceCache, parts_of, version_of
from mistify_server.worker.checkpoints import Checkpoints


class _Predictions(NamedTuple):
    """A teacher's predictions for images and their mirror images: output -> [examples, ...]."""

    as_they_are: Mapping[str, Array] | None = None
    mirrored: Mapping[str, Array] | None = None


class TrainingSetups:
    """Prepares training setups. A teacher's predictions are computed once for all goals of a tree."""

    def __init__(self, cache: SourceCache, checkpoints: Checkpoints) -> None:
        self._cache = cache
        self._checkpoints = checkpoints
        self._predicted: tuple[tuple[str, DataVersion, bool], _Predictions] | None = None

    def prepare(self, recipe: TaughtRecipe, params: Params, *, distilled: bool = True) -> TrainingSetup:
        """Return the data and settings for training a teacher's students.

        Args:
            recipe: The recipe with the teacher and the data.
            distilled: Whether students also learn from the teacher's predictions.
        """
        settings = recipe.data.settings
        learning = self._parts(recipe)[0]
        version = version_of(learning)  # before loading the data, because a file may change during loading
        train, validation = self._cache.learning(learning)
        if learning.unlabelled is not None and params.distillation:
            train = with_unlabelled(train, self._cache.data(learning.unlabelled).inputs)
        flips = settings.augment is not None and settings.augment.flip
        predicted = self._predictions(recipe.teacher, version, train, flips) if distilled else _Predictions()
        return TrainingSetup(train, validation, predicted.as_they_are, params, settings, predicted.mirrored)

    def test(self, recipe: TaughtRecipe) -> Dataset:
        """Return the test data, which only the measurement of packages uses."""
        return self._cache.data(self._parts(recipe)[1])

    def _parts(self, recipe: TaughtRecipe) -> tuple[LearningData, DataPart]:
        return parts_of(recipe.data, signature_of(self._checkpoints.shared(recipe.teacher)))

    def _predictions(self, teacher: str, version: DataVersion, train: Dataset, flips: bool) -> _Predictions:
        """Return the teacher's predictions for the training data and, if needed, for mirror images."""
        key = teacher, version, flips
        if self._predicted is None or self._predicted[0] != key:
            model = self._checkpoints.shared(teacher)
            objectives, evaluation = objectives_of(model, train), Evaluation(model)
            as_they_are = predictions(objectives, evaluation.outputs(train.inputs))
            of_mirrored = evaluation.outputs(mirrored(model, train.inputs)) if flips else None
            self._predicted = (
                key,
                _Predictions(as_they_are, of_mirrored and predictions(objectives, of_mirrored)),
            )
        return self._predicted[1]
