"""Processor time of a package, written into a template or converted.

`python -m benchmarks.porting.packages [--quick] [--json FILE]`

Networks of goals, which are narrower than their source and have other weights, are packaged one after another
by two warm workers, as they are after they have adapted them: one writes networks into templates, the other
one converts each of them. They alternate, in this process, with one thread. The sources are the built-in one
for digits, ResNet-8 (MLPerf Tiny's architecture) and a small MobileNet on random images. `seconds` is the
median of a package after those that make the template; `goals_16` are the seconds of sixteen goals with them.
Both include everything but the measurements in LiteRT, which run in a separate process: `litert_seconds` are
its processor seconds. Where another worker has adapted a network, loading it takes `loading_seconds` more. No
data are needed.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final, NamedTuple
from unittest.mock import patch

import keras
import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.harness.mobilenet import mobilenet
from benchmarks.harness.run import Figures, Target, run_with_one_thread, seconds
from benchmarks.porting.step import SOURCE
from benchmarks.tuning.step import resnet8
from executors.sources.keras.builtin import builtin_source
from executors.structure import Structure, analyse, narrow
from mistify.jobs.package_spec import PackageSpec
from mistify_server.store.artifacts import Artifacts
from mistify_server.store.preparations import Preparations
from mistify_server.tasks.recipe import TaughtRecipe
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import PackageTask
from mistify_server.worker.cache import SourceCache
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.package_tasks import Packager
from mistify_server.worker.packaging.conversion.templates import ConversionTemplates
from mistify_server.worker.prepared_conversions import PreparedConversions
from mistify_server.worker.training_setups import TrainingSetups

#: Shares of the widths of the smallest goal and of the largest one.
SMALLEST: Final = 0.3
LARGEST: Final = 0.95

GOALS: Final = 16

#: Goals that are packaged, in a full run and in a quick one.
_TIMED: Final = 7
_QUICK_GOALS: Final = 5

#: Columns of the table, and their figures.
_COLUMNS: Final = {
    "written": "seconds",
    "converted": "converted_seconds",
    "16 goals written": "goals_16",
    "16 goals converted": "converted_goals_16",
    "loading": "loading_seconds",
    "in LiteRT": "litert_seconds",
}

#: Packages until the template is made.
_FIRST: Final = 2

#: Random images of networks without data of their own, as many as benchmarks have of CIFAR-10.
_TRAINING: Final = 15_000
_TEST: Final = 4_000

TARGETS: Final[dict[str, Target]] = {
    "digits_seconds": {"what": "digits: processor seconds of a package", "max": 0.05},
    "resnet8_seconds": {"what": "ResNet-8: processor seconds of a package", "max": 0.15},
    "mobilenet_times": {"what": "MobileNet: times faster than a package that is converted", "min": 3.0},
}


class Source(NamedTuple):
    """A network, and its data; None for random images."""

    make: Callable[[], keras.Model]
    data: DataSource | None


SOURCES: Final = {
    "digits": Source(
        lambda: builtin_source("digits-resnet"),
        DataSource(train="builtin:digits-train", test="builtin:digits-test"),
    ),
    "resnet8": Source(lambda: resnet8(SOURCE), None),
    "mobilenet": Source(mobilenet, None),
}


class Spent(NamedTuple):
    """Processor seconds of a package: of the worker, and of its LiteRT process."""

    worker: float
    litert: float


class Packaged(NamedTuple):
    """What each package takes, written and converted, and the seconds of loading its network."""

    written: list[Spent]
    converted: list[Spent]
    loading: list[float]


def main(argv: Sequence[str] = ()) -> int:
    """Run the benchmark and return the exit code."""
    return run_with_one_thread("porting.packages", TARGETS, measure, argv)


def measure(options: Namespace) -> Figures:
    """Package the goals of each source in both ways, print the table and return the figures."""
    figures: dict[str, float] = {}
    table = Table(title="Processor seconds of a package", title_justify="left")
    for column in ("source", *_COLUMNS):
        table.add_column(column, justify="left" if column == "source" else "right")
    for name, source in SOURCES.items():
        of = figures_of(packaged(source, _QUICK_GOALS if options.quick else _TIMED))
        figures |= {f"{name}_{figure}": value for figure, value in of.items()}
        table.add_row(name, *(f"{of[figure]:.3g}" for figure in _COLUMNS.values()))
    Console().print(table)
    return figures


def figures_of(done: Packaged) -> dict[str, float]:
    """Return the figures of both ways; the first packages of each are those that make a template."""
    sides = done.written, done.converted
    own, other = (median(spent.worker for spent in side[_FIRST:]) for side in sides)
    first, others_first = (sum(spent.worker for spent in side[:_FIRST]) for side in sides)
    return {
        "seconds": own,
        "converted_seconds": other,
        "times": other / own,
        "goals_16": first + (GOALS - _FIRST) * own,
        "converted_goals_16": others_first + (GOALS - _FIRST) * other,
        "litert_seconds": median(spent.litert for spent in done.written[_FIRST:]),
        "loading_seconds": median(done.loading[_FIRST:]),
    }


class Worker:
    """A worker that packages networks.

    Args:
        artifacts: Stores the networks.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        self._checkpoints, cache = Checkpoints(artifacts), SourceCache(lambda progress: None)
        setups = TrainingSetups(cache, self._checkpoints)
        self._packager = Packager(
            artifacts,
            cache,
            self._checkpoints,
            setups,
            PreparedConversions(Preparations(artifacts), self._checkpoints, setups),
            templates=ConversionTemplates(),
            on_progress=lambda progress: None,
        )

    def save(self, model: keras.Model) -> str:
        """Store a network, as after its adaptation."""
        return self._checkpoints.save(model)

    def package(self, task: PackageTask) -> Spent:
        """Make a package."""
        start, litert = process_time(), _litert_seconds()
        self._packager.package(task)
        return Spent(process_time() - start, _litert_seconds() - litert)


def packaged(source: Source, goals: int) -> Packaged:
    """Return what each package takes if its network is written, and if it is converted."""
    model = source.make()
    structure = analyse(model)
    done = Packaged([], [], [])
    with TemporaryDirectory() as directory:
        artifacts = Artifacts(Path(directory, "artifacts"))
        data = source.data or random_data(Path(directory), model)
        workers = Worker(artifacts), Worker(artifacts)
        teacher = workers[0].save(model)
        for number, share in enumerate(np.geomspace(LARGEST, SMALLEST, goals)):
            network = narrower(structure, float(share), number)
            checkpoint, _ = (worker.save(network) for worker in workers)
            task = package_task(teacher, checkpoint, data)
            done.written.append(workers[0].package(task))
            with converter_alone():
                done.converted.append(workers[1].package(task))
            load = partial(Checkpoints(artifacts).load, checkpoint)
            done.loading.extend(seconds(load, 1, process_time))
    return done


def narrower(structure: Structure, share: float, seed: int) -> keras.Model:
    """Return a network with a share of the widths, whose weights are changed at random."""
    rng = np.random.default_rng(seed)
    keep = {
        name: rng.permutation(size) < max(2, round(share * size)) for name, size in structure.widths.items()
    }
    model = narrow(structure, keep)
    for variable in model.trainable_variables:
        variable.assign(variable.numpy() * rng.uniform(0.9, 1.1, variable.shape))
    return model


def package_task(teacher: str, checkpoint: str, data: DataSource) -> PackageTask:
    """Return the task that packages a checkpoint."""
    recipe = TaughtRecipe(
        model=ModelSource(path="source.keras"),
        data=data,
        algorithm="uniform",
        settings={},
        hardware={},
        seed=0,
        teacher=teacher,
    )
    return PackageTask(
        recipe=recipe,
        checkpoint=checkpoint,
        job_id="benchmark",
        goal_id="goal",
        spec=PackageSpec(budget={}),
        costs={},
        accuracy=0.5,
        shares_conversion=True,
    )


def random_data(directory: Path, model: keras.Model) -> DataSource:
    """Write random images with random classes."""
    rng = np.random.default_rng(0)
    train, test = (str(directory / f"{name}.npz") for name in ("train", "test"))
    for path, count in ((train, _TRAINING), (test, _TEST)):
        images = rng.integers(0, 256, (count, *model.inputs[0].shape[1:]), np.uint8)
        np.savez(path, x=images, y=rng.integers(0, model.outputs[0].shape[-1], count))
    return DataSource(train=train, test=test)


@contextmanager
def converter_alone() -> Iterator[None]:
    """Convert each network within the block."""
    with patch.object(ConversionTemplates, "written", lambda *_: None):
        yield


def _litert_seconds() -> float:
    """Return the processor seconds of the processes started by this one so far."""
    times = (child.cpu_times() for child in psutil.Process().children())
    return float(sum(own.user + own.system for own in times))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
