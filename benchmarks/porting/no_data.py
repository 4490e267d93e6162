"""Porting without data: `python -m benchmarks.porting.no_data --data DIR`, with `worker.FILES` in DIR.

MLPerf Tiny's ResNet-8 is ported to half of its multiply-adds on inputs that are generated only from the
network. The figure is the balanced disagreement between the package and the source on CIFAR-10's test photos,
which were not used for training: the share of photos with different predictions, averaged over the source's
predicted classes. As an upper reference, the network is also ported on the same number of unlabelled photos.
Everything is repeated with several seeds (quick run: one); results are medians. The time for generation is
CPU time, which is less affected by other programs.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import (
    Figures,
    Target,
    add_data_option,
    add_seeds_option,
    data_with,
    run,
    seeds_of,
)
from benchmarks.harness.worker import FILES, RESNET8, TEST, TRAIN, Porting
from executors.sources.keras.loading import load_keras
from executors.synthesis.inputs import generated
from executors.training.evaluation import Evaluation
from mistify_client import load
from mistify_server.tasks.sources import DataSource, ModelSource

#: Numbers of training and test inputs, and training steps.
EXAMPLES: Final = 600
TEST_EXAMPLES: Final = 100
SHARE: Final = 0.5
STEPS: Final = 1_000

#: Reference figures of the method up to commit 5032751, which optimized the pixels of white noise in 200
#: steps, with seed 0 on the machine of the results: balanced disagreement in percent, and CPU seconds.
FORMER_DISAGREEMENT: Final = 80.8
FORMER_SECONDS: Final = 181.1

TARGETS: Final[dict[str, Target]] = {
    "disagreement": {
        "what": "disagreement with the source after porting on generated inputs, %",
        "max": FORMER_DISAGREEMENT / 2,
    },
    "generation_seconds": {
        "what": "generating 600 inputs, processor seconds",
        "max": FORMER_SECONDS / 10,
    },
}

_REPETITIONS: Final = 3

Answers = npt.NDArray[np.int64]


class Ported(NamedTuple):
    """The disagreements of one seed in percent, with generated inputs and with unlabelled photos."""

    generated: float
    photos: float


def measure(options: Namespace) -> Figures:
    """Port, compare and time; return the figures."""
    data = data_with(FILES, options)
    runs = []
    for seed in seeds_of(options):
        with TemporaryDirectory() as directory:
            runs.append(_ported(data, Path(directory), seed))
    Console().print(_table(seeds_of(options), runs))
    spent = [_generation_seconds(data) for _ in range(1 if options.quick else _REPETITIONS)]
    return figures_of(runs) | {"generation_seconds": median(spent)}


def figures_of(runs: Sequence[Ported]) -> dict[str, float]:
    """Return medians over the seeds."""
    return {
        "disagreement": median(run.generated for run in runs),
        "disagreement_with_photos": median(run.photos for run in runs),
    }


def balanced_disagreement(source: Answers, package: Answers) -> float:
    """Return the share of different predictions, averaged over the source's predicted classes (%)."""
    classes = np.unique(source)
    return 100 * float(np.mean([np.mean(package[source == label] != label) for label in classes]))


def _ported(data: Path, directory: Path, seed: int) -> Ported:
    photos = _unlabelled(data, directory / "photos.npz", seed)
    sources = {
        "generated": DataSource(
            train=f"generated:{EXAMPLES}", test=f"generated:{TEST_EXAMPLES}", labelled=False
        ),
        "photos": DataSource(unlabelled=str(photos), labelled=False),
    }
    return Ported(
        **{name: _disagreement(data, source, directory / name, seed) for name, source in sources.items()}
    )


def _unlabelled(data: Path, path: Path, seed: int) -> Path:
    """Write some of the training photos, without their labels."""
    photos = _photos(data / TRAIN)
    np.savez(path, x=photos[np.random.default_rng(seed).permutation(len(photos))[:EXAMPLES]])
    return path


def _disagreement(data: Path, source: DataSource, directory: Path, seed: int) -> float:
    """Port the source and return the balanced disagreement of its package on the test photos."""
    settings = {"source_steps": 0, "seed": seed}
    porting = Porting(ModelSource(path=str(data / RESNET8)), source, directory / "store", settings)
    package = porting.write_package(porting.checkpoint(SHARE, STEPS), directory / "package")
    photos = _photos(data / TEST)
    answers = np.asarray(load(package)(photos)).argmax(axis=1)
    return balanced_disagreement(_predicted(data, photos), answers)


def _photos(path: Path) -> npt.NDArray[np.float32]:
    with np.load(path) as arrays:
        return np.asarray(arrays["x"], np.float32)


def _predicted(data: Path, photos: npt.NDArray[np.float32]) -> Answers:
    """Return the source's predicted classes of some photos."""
    source = load_keras(data / RESNET8)
    (outputs,) = Evaluation(source).outputs({source.inputs[0].name: photos}).values()
    return np.asarray(outputs.argmax(axis=1), np.int64)


def _generation_seconds(data: Path) -> float:
    source = load_keras(data / RESNET8)
    start = process_time()
    generated(source, EXAMPLES, 0, to_train=True)
    return process_time() - start


def _table(seeds: Sequence[int], runs: Sequence[Ported]) -> Table:
    table = Table(title="balanced disagreement with the source, in percent", title_justify="left")
    for column in ("seed", "generated inputs", "unlabelled photos"):
        table.add_column(column, justify="right")
    for seed, ported in zip(seeds, runs, strict=True):
        table.add_row(str(seed), *(f"{figure:.1f}" for figure in ported))
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    add_seeds_option(parser)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("porting.no_data", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
