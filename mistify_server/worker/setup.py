"""What networks learn from: the data, and what the source says of it."""

from collections.abc import Callable, Mapping

import keras

from executors.base import Params
from executors.data import Array, Dataset
from executors.structure.signature import signature_of
from executors.training.evaluation import Evaluation
from executors.training.objectives import objectives_of, predictions
from executors.training.setup import TrainingSetup
from mistify_server.tasks.sources import DataSource
from mistify_server.worker.cache import SourceCache, parts_of


class TrainingSetups:
    """Prepares what networks learn from; a teacher's predictions are made once for all goals of a tree.

    Args:
        cache: Has the data.
        model: Loads a checkpoint.
    """

    def __init__(self, cache: SourceCache, model: Callable[[str], keras.Model]) -> None:
        self._cache = cache
        self._model = model
        self._taught: tuple[str, Dataset, Mapping[str, Array]] | None = None

    def of(self, teacher: str, data: DataSource, params: Params, *, distilled: bool = True) -> TrainingSetup:
        """What the students of a teacher, a checkpoint, learn from; not its predictions unless distilled."""
        train, test = map(self._cache.data, parts_of(data, signature_of(self._model(teacher))))
        predicted = self._predictions(teacher, train) if distilled else None
        return TrainingSetup(train, test, predicted, params, data.settings)

    def _predictions(self, teacher: str, train: Dataset) -> Mapping[str, Array]:
        if self._taught is None or self._taught[0] != teacher or self._taught[1] is not train:
            model = self._model(teacher)
            outputs = Evaluation(model).outputs(train.inputs)
            self._taught = (teacher, train, predictions(objectives_of(model, train), outputs))
        return self._taught[2]
