"""Porting without data: `python -m benchmarks.no_data --data DIR`, with the files of `porting.FILES` in DIR.

MLPerf Tiny's ResNet-8 is ported to half of its multiply-adds on inputs that are generated from it alone. What
counts is on how many of CIFAR-10's test photos, which no training saw, the package says something else than
the source: its balanced disagreement, the mean over the classes that the source names of the share of their
photos. As an upper reference it is ported on as many photos with the source's answers as targets. It is all
done with several seeds (the quick run: one); the medians count. The time of the generation is told in
training steps of the source that take as long, which are timed in turn, so that it says the same of other
machines.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.harness import Figures, Target, add_data_option, data_with, paired_ratio, run
from benchmarks.porting import FILES, RESNET8, TEST, TRAIN, Porting
from benchmarks.tuning_packages import pretrained_says
from executors.data import Dataset
from executors.sources import load_source
from executors.structure import copied
from executors.training.setup import TrainingParams, TrainingSetup
from executors.training.synthesis import generated
from executors.training.trainer import Trainer, constant
from mistify_client.runtime.model import load
from mistify_server.tasks.sources import DataSource, ModelSource

#: Inputs to learn from, and to test on, and training steps.
EXAMPLES: Final = 600
TEST_EXAMPLES: Final = 100
SHARE: Final = 0.5
STEPS: Final = 1_000

#: What this benchmark measured of the method up to commit 5032751, which changed the pixels of white noise in
#: 200 steps: balanced disagreement in percent, and training steps that took as long as generating.
FORMER_DISAGREEMENT: Final = 43.0
FORMER_STEPS: Final = 2_000.0

TARGETS: Final[dict[str, Target]] = {
    "disagreement": {"max": FORMER_DISAGREEMENT / 2},
    "generation_steps": {"max": FORMER_STEPS / 10},
}

#: Training steps that are timed at once, and how often both sides are timed.
_TIMED_STEPS: Final = 50
_REPETITIONS: Final = 3

Answers = npt.NDArray[np.int64]


class Ported(NamedTuple):
    """The disagreements of one seed in percent, with generated inputs and with photos."""

    generated: float
    photos: float


def measure(options: Namespace) -> Figures:
    """Port, compare and time; return the figures."""
    data = data_with(FILES, options)
    runs = []
    for seed in range(1 if options.quick else options.seeds):
        with TemporaryDirectory() as directory:
            runs.append(_ported(data, Path(directory), seed))
    Console().print(_table(runs))
    return figures_of(runs) | _generation(data, 1 if options.quick else _REPETITIONS)


def figures_of(runs: Sequence[Ported]) -> dict[str, float]:
    """Return medians over the seeds."""
    return {
        "disagreement": median(run.generated for run in runs),
        "disagreement_with_photos": median(run.photos for run in runs),
    }


def balanced_disagreement(source: Answers, package: Answers) -> float:
    """Return the mean over the source's classes of the share that the package tells otherwise, in percent."""
    classes = np.unique(source)
    return 100 * float(np.mean([np.mean(package[source == label] != label) for label in classes]))


def _ported(data: Path, directory: Path, seed: int) -> Ported:
    without = DataSource(train=f"generated:{EXAMPLES}", test=f"generated:{TEST_EXAMPLES}")
    photos = _own_answers(data, directory / "photos.npz", seed)
    return Ported(
        _disagreement(data, without, directory / "generated", seed),
        _disagreement(data, DataSource(train=str(photos), test=str(photos)), directory / "photos", seed),
    )


def _own_answers(data: Path, path: Path, seed: int) -> Path:
    """Write some of the photos with the source's answers as targets."""
    photos = _photos(data / TRAIN)
    chosen = np.random.default_rng(seed).permutation(len(photos))[:EXAMPLES]
    np.savez(path, x=photos[chosen], y=_says(data, photos[chosen]))
    return path


def _disagreement(data: Path, source: DataSource, directory: Path, seed: int) -> float:
    """Port the source and return the balanced disagreement of its package on the test photos."""
    settings = {"source_steps": 0, "seed": seed}
    porting = Porting(ModelSource(path=str(data / RESNET8)), source, directory / "store", settings)
    package = porting.write_package(porting.checkpoint(SHARE, STEPS), directory / "package")
    photos = _photos(data / TEST)
    answers = np.asarray(load(package)(photos)).argmax(axis=1)
    return balanced_disagreement(_says(data, photos), answers)


def _photos(path: Path) -> npt.NDArray[np.float32]:
    with np.load(path) as arrays:
        return np.asarray(arrays["x"], np.float32)


def _says(data: Path, photos: npt.NDArray[np.float32]) -> Answers:
    return np.asarray(pretrained_says(data / RESNET8, photos).argmax(axis=1), np.int64)


def _generation(data: Path, repetitions: int) -> dict[str, float]:
    """Return the seconds of the generation, and how many training steps take as long."""
    source = load_source(data / RESNET8)
    made = generated(source, TEST_EXAMPLES, 0)
    trainer = _trainer(source, made)
    pair = paired_ratio(
        lambda: trainer.train(constant(_TIMED_STEPS)), lambda: generated(source, EXAMPLES, 0), repetitions
    )
    return {"generation_seconds": pair.b, "generation_steps": pair.ratio * _TIMED_STEPS}


def _trainer(source: keras.Model, data: Dataset) -> Trainer:
    """Return a trainer of a copy of the source, warmed up."""
    trainer = Trainer(copied(source), TrainingSetup(data, data, None, TrainingParams()), 0)
    trainer.train(constant(1))
    return trainer


def _table(runs: Sequence[Ported]) -> Table:
    table = Table(title="balanced disagreement with the source, in percent", title_justify="left")
    for column in ("seed", "generated inputs", "photos"):
        table.add_column(column, justify="right")
    for seed, ported in enumerate(runs):
        table.add_row(str(seed), *(f"{figure:.1f}" for figure in ported))
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    parser.add_argument("--seeds", type=int, metavar="N", default=3, help="repeat with so many seeds")


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("no_data", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
