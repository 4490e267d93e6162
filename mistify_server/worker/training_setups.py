"""Training setups: the data of a task, and the teacher's predictions for them."""

from collections.abc import Mapping
from dataclasses import dataclass

from executors.base import Params
from executors.data import Array, Dataset
from executors.structure.signature import signature_of
from executors.training.evaluation import Evaluation
from executors.training.objectives import objectives_of, predictions
from executors.training.setup import TrainingSetup
from mistify_server.tasks.sources import DataSource
from mistify_server.worker.cache import DataPart, DataVersion, SourceCache, parts_of, version_of
from mistify_server.worker.checkpoints import Checkpoints


@dataclass(frozen=True)
class SetupVersion:
    """All that the arrays of a training setup are made from: with equal versions they are equal.

    Attributes:
        teacher: The artifact of the teacher.
        train: The files of the training data.
        test: The files of the test data.
    """

    teacher: str
    train: DataVersion
    test: DataVersion


class TrainingSetups:
    """Prepares training setups. A teacher's predictions are computed once for all goals of a tree."""

    def __init__(self, cache: SourceCache, checkpoints: Checkpoints) -> None:
        self._cache = cache
        self._checkpoints = checkpoints
        self._predicted: tuple[tuple[str, DataVersion], Mapping[str, Array]] | None = None

    def prepare(
        self, teacher: str, data: DataSource, params: Params, *, distilled: bool = True
    ) -> TrainingSetup:
        """Return what the students of a teacher are trained with.

        Args:
            teacher: The teacher's artifact.
            data: What both are trained on.
            params: The settings of training.
            distilled: Whether students learn from the teacher's predictions, too.
        """
        version = self.version(teacher, data)  # before the data are loaded: a file may change meanwhile
        train, test = map(self._cache.data, self._parts(teacher, data))
        predicted = self._predictions(teacher, version.train, train) if distilled else None
        return TrainingSetup(train, test, predicted, params, data.settings)

    def version(self, teacher: str, data: DataSource) -> SetupVersion:
        """Return the version that a setup prepared now would have."""
        train, test = self._parts(teacher, data)
        return SetupVersion(teacher, version_of(train), version_of(test))

    def _parts(self, teacher: str, data: DataSource) -> tuple[DataPart, DataPart]:
        return parts_of(data, signature_of(self._checkpoints.shared(teacher)))

    def _predictions(self, teacher: str, version: DataVersion, train: Dataset) -> Mapping[str, Array]:
        """Return the teacher's predictions for the training data, output -> [examples, ...]."""
        key = teacher, version
        if self._predicted is None or self._predicted[0] != key:
            model = self._checkpoints.shared(teacher)
            outputs = Evaluation(model).outputs(train.inputs)
            self._predicted = key, predictions(objectives_of(model, train), outputs)
        return self._predicted[1]
