"""Training setups: the data of a task and the teacher's predictions."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import keras

from executors.contract.assignment import Assignment
from executors.contract.executor import AdaptationExecutor
from executors.contract.params import Params
from executors.contract.registry import algorithm
from executors.data import Array, Dataset
from executors.outputs.objectives import objectives_of, predictions, with_unlabelled
from executors.structure import Rules, Structure, analyse
from executors.structure.signature import signature_of
from executors.training.augmentation import mirrored
from executors.training.evaluation import Evaluation
from executors.training.setup import TrainingSetup
from mistify.config.task import TaskConfig
from mistify_server.tasks.recipe import TaughtRecipe
from mistify_server.worker.cache import DataPart, DataVersion, LearningData, SourceCache, parts_of, version_of
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.description.labels import with_labels
from mistify_server.worker.params import params_of
from mistify_server.worker.prepared_executors import PreparedExecutors
from mistify_server.worker.task_scope import MOST_ANSWERED, PropertyScope, TaskScope, scope_of


class _Predictions(NamedTuple):
    """A teacher's predictions for images and their mirror images: output -> [examples, ...]."""

    as_they_are: Mapping[str, Array] | None = None
    mirrored: Mapping[str, Array] | None = None


class TrainingSetups:
    """Prepares training setups, and networks, for tasks.

    A teacher's predictions are computed once for all goals of a tree.

    Args:
        cache: Loads the data.
        checkpoints: Loads the networks.
    """

    def __init__(self, cache: SourceCache, checkpoints: Checkpoints) -> None:
        self._cache = cache
        self._checkpoints = checkpoints
        self._executors = PreparedExecutors()
        self._latest_source: tuple[keras.Model, Rules, Structure] | None = None
        self._predicted: tuple[tuple[str, TaskScope, DataVersion, bool], _Predictions] | None = None
        self._networks = lru_cache(maxsize=4)(self._network)
        self._latest_scope: tuple[Hashable, TaskScope] | None = None

    def prepare(
        self, recipe: TaughtRecipe, params: Params, task: TaskConfig | None = None, *, distilled: bool = True
    ) -> TrainingSetup:
        """Return the data and settings for training a teacher's students.

        Args:
            recipe: The recipe with the teacher and the data.
            task: The students' task; None for everything that the data teach.
            distilled: Whether students also learn from the teacher's predictions.
        """
        scope = self._scope(recipe, task)
        settings = scope.settings(recipe.data.settings)
        learning = self._parts(recipe)[0]
        version = version_of(learning)  # before loading the data, because a file may change during loading
        signature = signature_of(self._checkpoints.shared(recipe.teacher))
        train, validation = (
            scope.data(with_labels(part, recipe.data.settings, signature), name)
            for name, part in zip(("train", "validation"), self._cache.learning(learning), strict=True)
        )
        distilled = distilled and (task is None or not _serves_tasks(recipe))
        if learning.unlabelled is not None and params.distillation and (distilled or task is None):
            train = with_unlabelled(train, self._cache.data(learning.unlabelled).inputs)
        flips = settings.augment is not None and settings.augment.flip
        predicted = _Predictions()
        if distilled:
            predicted = self._predictions(recipe.teacher, scope, version, train, flips)
        return TrainingSetup(
            train,
            validation,
            predicted.as_they_are,
            params,
            settings,
            predicted.mirrored,
            has_validation_labels=recipe.data.has_validation_labels,
        )

    def note(self, recipe: TaughtRecipe, task: TaskConfig | None) -> str:
        """Return a remark on the measured accuracy of a task, for people; may be empty."""
        return self._scope(recipe, task).note

    def test(self, recipe: TaughtRecipe, task: TaskConfig | None = None) -> Dataset:
        """Return the test data of a task, which only the measurement of packages uses."""
        return self._scope(recipe, task).data(self._cache.data(self._parts(recipe)[1]), "test")

    def teacher(self, recipe: TaughtRecipe, task: TaskConfig | None = None) -> keras.Model:
        """Return the tuned source, cut to a task as a `parent` is; it must not be changed."""
        return self.parent(recipe, recipe.teacher, task)

    def executor(self, recipe: TaughtRecipe, params: Params) -> AdaptationExecutor:
        """Return an executor for everything that needs no `init`; it keeps the preparation loaded."""
        return self._executors.of(recipe, params)

    def source(self, recipe: TaughtRecipe, params: Params, task: TaskConfig | None = None) -> Structure:
        """Return the structure of the teacher, cut to a task."""
        teacher, latest = self.teacher(recipe, task), self._latest_source
        if latest is None or latest[0] is not teacher or latest[1] != params.layers:
            latest = self._latest_source = teacher, params.layers, analyse(teacher, params.layers)
        return latest[2]

    def parent(self, recipe: TaughtRecipe, artifact: str, task: TaskConfig | None) -> keras.Model:
        """Return the network that an edge starts from, for a task; it must not be changed.

        For algorithms that serve tasks it stays whole.

        Args:
            artifact: A network that serves the task already, or the root, which is cut to it.
        """
        whole = task is None or _serves_tasks(recipe)
        return self._networks(artifact, TaskScope() if whole else self._scope(recipe, task))

    def _network(self, artifact: str, scope: TaskScope) -> keras.Model:
        return scope.network(self._checkpoints.shared(artifact))

    def _scope(self, recipe: TaughtRecipe, task: TaskConfig | None) -> TaskScope:
        """Return the scope of a task; the latest one is kept until a file of the data changes."""
        if task is None:
            return TaskScope()
        learning, test = self._parts(recipe)
        version = version_of(learning), version_of(test)  # before loading the data
        key = task, recipe.model_dump_json(exclude={"hardware"}), *version
        if self._latest_scope is None or self._latest_scope[0] != key:
            self._latest_scope = key, self._scope_in(recipe, task, self._cache.learning(learning), test)
        return self._latest_scope[1]

    def _scope_in(
        self, recipe: TaughtRecipe, task: TaskConfig, learning: tuple[Dataset, Dataset], test: DataPart
    ) -> TaskScope:
        train, validation = learning
        signature = signature_of(self._checkpoints.shared(recipe.teacher))
        scope = scope_of(task, signature, recipe.data.settings, train)
        if not isinstance(scope, PropertyScope):
            return scope
        tested = self._cache.data(test)
        if scope.is_answered(train, validation, tested):
            return scope
        params = params_of(recipe)
        reference = self._reference(recipe, params, task, TrainingSetup(train, validation, None, params))
        if reference is None:
            return scope
        return scope.unanswered(reference, train, tested, None if params.tune_steps else MOST_ANSWERED)

    def _reference(
        self, recipe: TaughtRecipe, params: Params, task: TaskConfig, setup: TrainingSetup
    ) -> keras.Model | None:
        """Return the network that answers a task in the place of data; None where the algorithm has none."""
        assignment = Assignment(
            model=self._checkpoints.shared(recipe.teacher),
            budget={},
            profiles=recipe.profiles,
            setup=replace(setup, settings=recipe.data.settings),
            seed=recipe.seed,
            source=self.source(recipe, params),
            prepared=self._checkpoints.load_prepared(recipe.prepared),
            task=task,
        )
        return self.executor(recipe, params).reference(assignment)

    def _parts(self, recipe: TaughtRecipe) -> tuple[LearningData, DataPart]:
        return parts_of(recipe.data, signature_of(self._checkpoints.shared(recipe.teacher)))

    def _predictions(
        self, teacher: str, scope: TaskScope, version: DataVersion, train: Dataset, flips: bool
    ) -> _Predictions:
        """Return the teacher's predictions for the training data and, if needed, for mirror images."""
        key = teacher, scope, version, flips
        if self._predicted is None or self._predicted[0] != key:
            model = self._networks(teacher, scope)
            objectives, evaluation = objectives_of(model, train), Evaluation(model)
            as_they_are = predictions(objectives, evaluation.outputs(train.inputs))
            of_mirrored = evaluation.outputs(mirrored(model, train.inputs)) if flips else None
            self._predicted = (
                key,
                _Predictions(as_they_are, of_mirrored and predictions(objectives, of_mirrored)),
            )
        return self._predicted[1]


def _serves_tasks(recipe: TaughtRecipe) -> bool:
    return algorithm(recipe.algorithm).serves_tasks
