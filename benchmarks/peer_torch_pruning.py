"""Accuracy of small networks against Torch-Pruning, with the same source, data and training steps.

`python -m benchmarks.peer_torch_pruning --data DIR [--steps N] [--seed N] [--quick] [--json FILE]
[--picture FILE]`

MLPerf Tiny's ResNet-8, tuned on CIFAR-10, is cut to shares of its multiply-adds: by Mistify, and by
Torch-Pruning in PyTorch, which starts from the same tuned weights. Each goal takes the same number of
training steps, on the same nine tenths of the training file. Both sides learn from the source's outputs as
well, recalibrate their batch norms on the same images and are measured on the same test file, in turn.

The peer is trained with each of several learning rates. Of these the one counts, for each share, whose
network is the most accurate on the other tenth of the training file.

DIR has `cifar10/train.npz`, `cifar10/test.npz` (arrays x, uint8, and y) and
`mlperf_tiny/resnet8_cifar10.h5`. The packages: `pip install -e '.[server,bench,peers]'`. `--quick` measures
one share, with few steps and two of the learning rates: it shows that all works, not who is better.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import keras
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.harness import Figures, MissingDataError, Target, add_data_option, data_with, run
from benchmarks.porting import FILES, Reached, resnet8
from executors.data import Array, Dataset
from executors.training.evaluation import Evaluation

SHARES: Final = (0.75, 0.5, 0.25, 0.125)
QUICK_SHARES: Final = (0.25,)
PEER, OURS = ("Torch-Pruning", "Mistify")

#: The peer's highest learning rates.
RATES: Final = (0.005, 0.01, 0.02, 0.04, 0.08)
QUICK_RATES: Final = (0.02, 0.04)
_QUICK_STEPS: Final = 100

TARGETS: Final[dict[str, Target]] = {
    "translation_difference": {"max": 1e-4},
    "shares_exceeded": {"max": 0},
    **{f"margin_at_{share}": {"min": 0, "full_run_only": True} for share in SHARES},
    "mean_margin": {"min": 3, "full_run_only": True},
}


#: What each side reaches at each share.
Rows = dict[str, dict[float, Reached]]


def measure(options: Namespace) -> Figures:
    """Return all figures; print the table and draw the picture."""
    data = data_with(FILES, options)
    if find_spec("torch_pruning") is None:
        raise MissingDataError("Torch-Pruning is not installed: pip install -e '.[peers]'")
    shares = QUICK_SHARES if options.quick else SHARES
    rates: dict[float, float] = {}
    rows: Rows = {PEER: {}, OURS: {}}
    with TemporaryDirectory() as directory:
        settings = {"seed": options.seed, **({"source_steps": _QUICK_STEPS} if options.quick else {})}
        ours = resnet8(data, Path(directory), settings)
        source = ours.source()
        train, validation = ours.learning()
        test = ours.test()
        steps = _QUICK_STEPS if options.quick else options.steps
        peer = Peer(source, train, validation, steps, options.seed)
        for share in shares:
            rates[share], rows[PEER][share] = peer.best(share, QUICK_RATES if options.quick else RATES, test)
            rows[OURS][share] = ours.case(share, steps)
    Console().print(_table(rows))
    if options.picture:
        _draw(rows, options.picture)
    figures = {
        "translation_difference": _translation_difference(source, test),
        **{f"peer_rate_at_{share}": rate for share, rate in rates.items()},
        **figures_of(rows),
    }
    return {name: of for name, of in figures.items() if not (options.quick and name.startswith("margin"))}


@dataclass(frozen=True)
class Peer:
    """Torch-Pruning with a source.

    Attributes:
        source: A Keras ResNet-8, the teacher as well.
        train: Training data.
        validation: What the learning rate is chosen by.
        steps: Of each run.
        seed: Where the order of the examples starts from.
    """

    source: keras.Model
    train: Dataset
    validation: Dataset
    steps: int
    seed: int

    def best(self, share: float, rates: Sequence[float], test: Dataset) -> tuple[float, Reached]:
        """Return the learning rate that suits a share best by the validation data, and what it reaches."""
        from benchmarks import torch_resnet8  # noqa: PLC0415 - an optional dependency

        image = torch_resnet8.tensors(torch_resnet8.arrays_of(self.train)[0][:1])
        full = torch_resnet8.multiply_adds(torch_resnet8.translated(self.source), image)
        runs = {rate: self._run(share, rate) for rate in rates}
        rate = max(runs, key=lambda rate: torch_resnet8.accuracy(runs[rate][0], self.validation))
        network, seconds = runs[rate]
        accuracy = torch_resnet8.accuracy(network, test)
        reached = torch_resnet8.multiply_adds(network, image) / full
        return rate, Reached(100 * accuracy, reached, self.steps, {"all": seconds})

    def _run(self, share: float, rate: float) -> tuple[Any, float]:
        """Return a network and the seconds that it took."""
        from benchmarks import torch_pruner  # noqa: PLC0415 - an optional dependency

        start = perf_counter()
        network = torch_pruner.pruned(
            self.source,
            share,
            self.train,
            self._taught,
            steps=self.steps,
            learning_rate=rate,
            seed=self.seed,
        )
        return network, perf_counter() - start

    @cached_property
    def _taught(self) -> Array:
        return _probabilities(self.source, self.train)


def _translation_difference(source: keras.Model, test: Dataset) -> float:
    """Return the largest difference between the outputs of the source and of its translation."""
    from benchmarks import torch_resnet8  # noqa: PLC0415 - an optional dependency

    images, _ = torch_resnet8.arrays_of(test)
    translated = torch_resnet8.probabilities(torch_resnet8.translated(source), torch_resnet8.tensors(images))
    return float(np.abs(translated.numpy() - _probabilities(source, test)).max())


def _probabilities(source: keras.Model, data: Dataset) -> Array:
    """Return a source's probabilities [examples, classes] for data."""
    (probabilities,) = Evaluation(source).outputs(data.inputs).values()
    return probabilities


def figures_of(rows: Rows) -> dict[str, float]:
    """Return the figures of a table; the mean margin only for a full run."""
    accuracies = {
        f"{side.lower().replace('-', '_')}_at_{share}": reached.accuracy
        for side, row in rows.items()
        for share, reached in row.items()
    }
    margins = {share: reached.accuracy - rows[PEER][share].accuracy for share, reached in rows[OURS].items()}
    figures = {
        **accuracies,
        "shares_exceeded": sum(
            reached.share > share for row in rows.values() for share, reached in row.items()
        ),
        **{f"margin_at_{share}": margin for share, margin in margins.items()},
    }
    return {**figures, "mean_margin": mean(margins.values())} if len(margins) == len(SHARES) else figures


def _table(rows: Rows) -> Table:
    table = Table(title="Accuracy on the test file by the share of multiply-adds", title_justify="left")
    for column in ("share", "side", "accuracy, %", "share reached", "steps", "seconds"):
        table.add_column(column, justify="left" if column == "side" else "right")
    for share in rows[OURS]:
        for side, row in rows.items():
            reached = row[share]
            table.add_row(
                f"{share:g}",
                side,
                f"{reached.accuracy:.2f}",
                f"{reached.share:.4f}",
                f"{reached.steps:,}",
                f"{reached.seconds:.0f}",
            )
    return table


def _draw(rows: Rows, file: Path) -> None:
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for side, row in rows.items():
        points = sorted((reached.share, reached.accuracy) for reached in row.values())
        axes.semilogx(*zip(*points, strict=True), marker="o", label=side)
    axes.set_xticks(SHARES, [f"{share:g}" for share in SHARES])
    axes.minorticks_off()
    axes.set(xlabel="share of the source's multiply-adds", ylabel="accuracy [%]")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=120)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    parser.add_argument("--steps", type=int, default=900, help="training steps of each goal")
    parser.add_argument("--seed", type=int, default=0, help="where the randomness of both sides starts")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the accuracies into this PNG file")


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("peer_torch_pruning", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
