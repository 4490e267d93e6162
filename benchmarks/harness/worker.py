"""Mistify's side of the benchmarks: the server's own tasks, run by one warm worker in this process."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, log
from pathlib import Path
from typing import Final, NamedTuple

import keras

from executors.data import Dataset
from executors.pruning.params import LEAST_CUT
from executors.structure.signature import signature_of
from executors.training.evaluation import evaluate
from mistify.config.package.exits import ExitsConfig
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.package.tuning import TuningConfig
from mistify.config.task import TaskConfig
from mistify.costs.budget import FLOPS, latency_axis, size_axis
from mistify.costs.catalogue import HOST
from mistify.costs.quantization import Quantization
from mistify.jobs.package_spec import PackageSpec
from mistify_server.store.artifacts import Artifacts
from mistify_server.tasks.recipe import Recipe, TaughtRecipe
from mistify_server.tasks.results import (
    AdaptResult,
    BranchResult,
    PackageResult,
    PrepareResult,
    SourceResult,
)
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import (
    AdaptTask,
    BranchTask,
    PackageTask,
    PrepareTask,
    SourceTask,
)
from mistify_server.worker.cache import SourceCache, parts_of
from mistify_server.worker.runner import TaskRunner

TRAIN: Final = "cifar10/train.npz"
TEST: Final = "cifar10/test.npz"
RESNET8: Final = "mlperf_tiny/resnet8_cifar10.h5"
FILES: Final = (TRAIN, TEST, RESNET8)

#: Share of a goal's steps before the last cut, and the maximum number of cuts.
_CUTTING: Final = 0.4
_CUTS: Final = 8


class Reached(NamedTuple):
    """The result of one goal.

    Attributes:
        accuracy: Accuracy on the test file, in percent.
        share: Multiply-adds, as a share of the source's.
        steps: Training steps of this goal alone.
        spent: Seconds by activity.
    """

    accuracy: float
    share: float
    steps: int
    spent: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """Return the seconds of the goal."""
        return sum(self.spent.values())


class Packaged(NamedTuple):
    """A LiteRT package: actual and predicted size in bytes, latency, and note; accuracies are shares.

    Attributes:
        accuracy: Accuracy on the test file.
        validation_accuracy: Accuracy on the validation data, which are used for choices.
    """

    accuracy: float
    validation_accuracy: float
    size: int
    foretold_size: float
    latency_ms: float
    note: str


class Checkpoint(NamedTuple):
    """An adapted network: its artifact, its costs, and its accuracy on the validation data as a share."""

    artifact: str
    costs: Mapping[str, float]
    accuracy: float


class Porting:
    """A source, tuned on its data, that is adapted to goals.

    Args:
        data: Training and test data.
        directory: Directory for checkpoints.
        settings: Settings of the algorithm, for the source and for all goals.
        cuts: Maximum number of cuts per goal.
        least: The smallest goal's share of the source's multiply-adds, for which algorithms prepare.

    Attributes:
        data: Training and test data.
        preparing_steps: Training steps of the algorithm's preparation.
    """

    def __init__(
        self,
        model: ModelSource,
        data: DataSource,
        directory: Path,
        settings: Mapping[str, object],
        *,
        algorithm: str = "morphnet",
        cuts: int = _CUTS,
        least: float = 1.0,
    ) -> None:
        self._algorithm, self._cuts = algorithm, cuts
        self.data = data
        self._artifacts = Artifacts(directory)
        self._runner = TaskRunner(self._artifacts, lambda progress: None)
        self._settings = dict(settings)
        self._made = self._make(model, self._settings, {})
        self.data = self._made.data or data  # files instead of generated data
        self._full = self._made.root_costs[FLOPS]
        self._prepared, self.preparing_steps = self._prepare(least * self._full)

    @property
    def accuracy(self) -> float:
        """Return the accuracy of the tuned source on the test file, in percent."""
        return self.tested(self._made.teacher)

    @property
    def tuned(self) -> ModelSource:
        """Return the tuned source, for another porting."""
        return ModelSource(path=str(self._artifacts.path(self._made.teacher)))

    def source(self) -> keras.Model:
        """Return the tuned source."""
        return keras.models.load_model(self._artifacts.path(self._made.teacher), compile=False)

    def learning(self) -> tuple[Dataset, Dataset]:
        """Return the training examples of tasks, and the examples for their choices."""
        parts, _ = parts_of(self.data, signature_of(self.source()))
        return SourceCache(lambda progress: None).learning(parts)

    def test(self) -> Dataset:
        """Return the test data."""
        _, part = parts_of(self.data, signature_of(self.source()))
        return SourceCache(lambda progress: None).data(part)

    def tested(self, artifact: str) -> float:
        """Return a network's accuracy on the test file, in percent; tasks only score validation data."""
        model = keras.models.load_model(self._artifacts.path(artifact), compile=False)
        return 100 * evaluate(model, self.test(), self.data.metric)

    def widened_accuracy(self, share: float) -> float:
        """Return the source's accuracy directly after widening to a share above 1 of its multiply-adds."""
        return self.tested(self._root(share))

    def collective(self, steps: Mapping[float, int]) -> dict[float, Reached]:
        """Adapt each goal from the previous one, largest first, with the given steps for each share."""
        return {share: self._reached(result) for share, result in self._path(steps)}

    def descended(self, steps: Mapping[float, int | None]) -> dict[float, Checkpoint]:
        """Return networks adapted one from the other, largest first; see `descending`."""
        return dict(self.descending(steps))

    def descending(self, steps: Mapping[float, int | None]) -> Iterator[tuple[float, Checkpoint]]:
        """Yield networks adapted one from the other, largest first, each as soon as it is adapted.

        Args:
            steps: Share of the multiply-adds -> training steps; None for the number in the settings.
        """
        for share, result in self._path(steps):
            yield share, Checkpoint(result.checkpoint, result.costs, result.accuracy)

    def case(self, share: float, steps: int | None = None) -> Reached:
        """Adapt one goal from the source, with a number of steps or that in the settings."""
        return self._reached(self._adapt(self._root(share), share, steps, 1 / share))

    def checkpoint(self, share: float, steps: int | None = None) -> Checkpoint:
        """Return the tuned source, or a network adapted from it to a share of its multiply-adds."""
        if share == 1:
            prepared = self._made
            return Checkpoint(prepared.teacher, prepared.source_costs, prepared.teacher_accuracy)
        result = self._adapt(self._root(share), share, steps, 1 / share)
        return Checkpoint(result.checkpoint, result.costs, result.accuracy)

    def reached(self, checkpoint: Checkpoint, steps: int) -> Reached:
        """Return the result of a checkpoint after `steps`, without its duration, which is unknown."""
        share = checkpoint.costs[FLOPS] / self._full
        return Reached(self.tested(checkpoint.artifact), share, steps, {})

    def trained_on(
        self, checkpoint: Checkpoint, share: float, steps: int, task: TaskConfig | None = None
    ) -> Checkpoint:
        """Return a checkpoint at a share of the multiply-adds after additional training steps.

        Args:
            task: The task that it is restricted to; None for everything that the data teach.
        """
        result = self._adapt(checkpoint.artifact, share, steps, 1.0, task)
        return Checkpoint(result.checkpoint, result.costs, result.accuracy)

    def network(self, checkpoint: Checkpoint) -> keras.Model:
        """Return the network of a checkpoint."""
        return keras.models.load_model(self._artifacts.path(checkpoint.artifact), compile=False)

    def branches(
        self, checkpoint: Checkpoint, share: float, multiples: Sequence[float], steps: int | None = None
    ) -> BranchResult:
        """Return branches of a checkpoint at multiples of its share, each with a number of steps."""
        result = self._runner.run(
            BranchTask(
                recipe=self._taught(self._with_steps(steps, self._cuts)),
                parent=checkpoint.artifact,
                budget={FLOPS: share * self._full},
                shares=tuple(multiples),
                costs=dict(checkpoint.costs),
            )
        )
        if not isinstance(result, BranchResult):
            raise TypeError(f"branches gave {result}")
        return result

    def write_package(
        self,
        checkpoint: Checkpoint,
        directory: Path,
        branches: BranchResult | None = None,
        tuning: TuningConfig | None = None,
        *,
        precision: Quantization = Quantization.NONE,
        exits: ExitsConfig | None = None,
        shares_conversion: bool = False,
    ) -> Path:
        """Write a package into a new directory.

        Args:
            shares_conversion: Write the network into a template that other packages share, as in jobs with
                several goals.
        """
        result = self._packaged(
            checkpoint, precision, branches, tuning, exits, shares_conversion=shares_conversion
        )
        directory.mkdir(parents=True)
        for name, artifact in result.files.items():
            shutil.copyfile(self._artifacts.path(artifact), directory / name)
        return directory

    def package(self, checkpoint: Checkpoint, precision: Quantization) -> Packaged:
        """Package a checkpoint at a precision."""
        result = self._packaged(checkpoint, precision)
        return Packaged(
            result.accuracy,
            result.validation_accuracy,
            round(result.achieved[size_axis(precision)]),
            checkpoint.costs[size_axis(precision)],
            result.measured[latency_axis(HOST.name)],
            result.note,
        )

    def _packaged(
        self,
        checkpoint: Checkpoint,
        precision: Quantization,
        branches: BranchResult | None = None,
        tuning: TuningConfig | None = None,
        exits: ExitsConfig | None = None,
        *,
        shares_conversion: bool = False,
    ) -> PackageResult:
        result = self._runner.run(
            PackageTask(
                recipe=self._taught(self._settings, seed=0, prepared=self._prepared),
                checkpoint=checkpoint.artifact,
                branches=branches,
                job_id="benchmark",
                goal_id=precision.value,
                spec=PackageSpec(
                    budget={},
                    quantization=QuantizationConfig(precision=precision),
                    tuning=tuning or TuningConfig(),
                    exits=exits,
                ),
                costs=dict(checkpoint.costs),
                accuracy=checkpoint.accuracy,
                shares_conversion=shares_conversion,
            )
        )
        if not isinstance(result, PackageResult):
            raise TypeError(f"a package gave {result}")
        return result

    def _reached(self, result: AdaptResult) -> Reached:
        share = result.costs[FLOPS] / self._full
        return Reached(self.tested(result.checkpoint), share, result.steps, result.spent)

    def _path(self, steps: Mapping[float, int | None]) -> Iterator[tuple[float, AdaptResult]]:
        """Yield the results of a path's goals, largest first."""
        shares = sorted(steps, reverse=True)
        parent, start = self._root(shares[0]), max(1.0, shares[0])
        for share in shares:
            result = self._adapt(parent, share, steps[share], start / share)
            parent, start = result.checkpoint, share
            yield share, result

    @property
    def _seed(self) -> int:
        seed = self._settings.get("seed", 0)
        if not isinstance(seed, int):
            raise TypeError(f"the seed is {seed!r}; expected an integer")
        return seed

    def _root(self, share: float) -> str:
        """Return the tuned source, widened if a goal is larger."""
        if share <= 1:
            return self._made.root
        return self._make(self.tuned, {**self._settings, "source_steps": 0}, {FLOPS: share * self._full}).root

    def _with_steps(self, steps: int | None, cuts: int) -> dict[str, object]:
        """Return the settings of an edge with a total number of steps; None for the default."""
        return {**self._settings, **({} if steps is None else _steps(steps, cuts, self._cuts))}

    def _adapt(
        self, parent: str, share: float, steps: int | None, way: float, task: TaskConfig | None = None
    ) -> AdaptResult:
        """Adapt with all of the steps, some of them while cutting; costs fall by the factor `way`."""
        cuts = min(self._cuts, ceil(log(way) / -log(1 - LEAST_CUT))) if way > 1 else 0
        return self._adapted(parent, share, self._with_steps(steps, cuts), task)

    def _adapted(
        self, parent: str, share: float, settings: Mapping[str, object], task: TaskConfig | None
    ) -> AdaptResult:
        result = self._runner.run(
            AdaptTask(
                recipe=self._taught(settings, prepared=self._prepared),
                parent=parent,
                budget={FLOPS: share * self._full},
                task=task,
            )
        )
        if not isinstance(result, AdaptResult) or not result.met:
            raise TypeError(f"an adaptation gave {result}")
        return result

    def _recipe(self, model: ModelSource, settings: Mapping[str, object]) -> Recipe:
        return Recipe(
            model=model,
            data=self.data,
            algorithm=self._algorithm,
            settings=dict(settings),
            hardware={},
            seed=self._seed,
        )

    def _taught(self, settings: Mapping[str, object], **changes: object) -> TaughtRecipe:
        """Return the recipe of networks with the tuned source as teacher."""
        return self._recipe(self.tuned, settings).taught_by(self._made.teacher, **changes)

    def _make(
        self, model: ModelSource, settings: dict[str, object], exceed: dict[str, float]
    ) -> SourceResult:
        result = self._runner.run(SourceTask(recipe=self._recipe(model, settings), exceed=exceed))
        if not isinstance(result, SourceResult):
            raise TypeError(f"a source gave {result}")
        return result

    def _prepare(self, least: float) -> tuple[str | None, int]:
        """Prepare for goals down to a share of the multiply-adds; return artifact and steps."""
        result = self._runner.run(PrepareTask(recipe=self._taught(self._settings), least={FLOPS: least}))
        if not isinstance(result, PrepareResult):
            raise TypeError(f"a preparation gave {result}")
        return result.prepared, result.steps


def _steps(steps: int, cuts: int, most: int) -> dict[str, object]:
    """Return settings for an edge with a total number of steps."""
    each = max(1, round(_CUTTING * steps / max(1, cuts)))
    return {
        "cuts": most,
        "adapt_steps": most * each,
        "tune_steps": steps - cuts * each,
        "max_steps": 2 * steps + most,
    }


def resnet8(data: Path, directory: Path, settings: Mapping[str, object]) -> Porting:
    """Return the porting of MLPerf Tiny's ResNet-8 on CIFAR-10, with the data directory's files."""
    files = DataSource(train=str(data / TRAIN), test=str(data / TEST))
    return Porting(ModelSource(path=str(data / RESNET8)), files, directory, settings)
