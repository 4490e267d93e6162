"""Accuracy of small networks against Torch-Pruning, with the same source, data and training steps.

`python -m benchmarks.peer_torch_pruning --data DIR [--steps N] [--seed N] [--quick] [--json FILE]
[--picture FILE]`

MLPerf Tiny's ResNet-8, tuned on CIFAR-10, is cut to shares of its multiply-adds: by Mistify, and by
Torch-Pruning in PyTorch, which starts from the same tuned weights. Each goal takes the same number of
training steps. Both sides recalibrate their batch norms on the same images and are measured on the same
test file, in turn. The targets are about the peer that learns from the labels, as its examples do; another
row gives it Mistify's teacher as well, which tells what is the cutting and what is the teaching.

DIR has `cifar10/train.npz`, `cifar10/test.npz` (arrays x, uint8, and y) and
`mlperf_tiny/resnet8_cifar10.h5`. The packages: `pip install -e '.[server,bench,peers]'`. `--quick` measures
one share, and without a teacher for the peer.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

import keras
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.harness import Figures, MissingDataError, Target, add_data_option, data_with, run
from benchmarks.porting import FILES, Reached, resnet8
from executors.data import Array, Dataset
from executors.readers.loading import load_dataset
from executors.structure.signature import signature_of
from executors.training.evaluation import Evaluation

SHARES: Final = (0.75, 0.5, 0.25, 0.125)
QUICK_SHARES: Final = (0.25,)
LABELS, TAUGHT, OURS = ("Torch-Pruning", "Torch-Pruning, taught", "Mistify")
TARGETS: Final[dict[str, Target]] = {
    "translation_difference": {"max": 1e-4},
    "shares_exceeded": {"max": 0},
    **{f"margin_at_{share}": {"min": 0, "full_run_only": share not in QUICK_SHARES} for share in SHARES},
    "mean_margin": {"min": 3, "full_run_only": True},
}


#: What each side reaches at each share.
Rows = dict[str, dict[float, Reached]]

_IN_FIGURES: Final = str.maketrans({"-": "_", " ": "_", ",": None})


def measure(options: Namespace) -> Figures:
    """Return all figures; print the table and draw the picture."""
    data = data_with(FILES, options)
    if find_spec("torch_pruning") is None:
        raise MissingDataError("Torch-Pruning is not installed: pip install -e '.[peers]'")
    shares = QUICK_SHARES if options.quick else SHARES
    with TemporaryDirectory() as directory:
        ours = resnet8(data, Path(directory), {"seed": options.seed})
        source = ours.source()
        signature = signature_of(source)
        train = load_dataset(ours.data.train, signature)
        test = load_dataset(ours.data.test, signature, ours.data.train)
        sides: dict[str, Callable[[float], Reached]] = {
            LABELS: lambda share: _peer(source, share, (train, test), None, options)
        }
        if not options.quick:
            teacher = _probabilities(source, train)
            sides[TAUGHT] = lambda share: _peer(source, share, (train, test), teacher, options)
        sides[OURS] = lambda share: ours.case(share, options.steps)
        rows: Rows = {side: {} for side in sides}
        for share in shares:
            for side, port in sides.items():
                rows[side][share] = port(share)
    Console().print(_table(rows))
    if options.picture:
        _draw(rows, options.picture)
    return {"translation_difference": _translation_difference(source, test), **figures_of(rows)}


def _peer(
    source: keras.Model,
    share: float,
    data: tuple[Dataset, Dataset],
    teacher: Array | None,
    options: Namespace,
) -> Reached:
    from benchmarks import torch_pruner, torch_resnet8  # noqa: PLC0415 - an optional dependency

    train, test = data
    image = torch_resnet8.tensors(torch_resnet8.arrays_of(train)[0][:1])
    start = perf_counter()
    network = torch_pruner.pruned(source, share, train, teacher, steps=options.steps, seed=options.seed)
    seconds = perf_counter() - start
    full = torch_resnet8.multiply_adds(torch_resnet8.translated(source), image)
    return Reached(
        100 * torch_resnet8.accuracy(network, test),
        torch_resnet8.multiply_adds(network, image) / full,
        options.steps,
        {"all": seconds},
    )


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
        f"{side.lower().translate(_IN_FIGURES)}_at_{share}": reached.accuracy
        for side, row in rows.items()
        for share, reached in row.items()
    }
    margins = {
        share: reached.accuracy - rows[LABELS][share].accuracy for share, reached in rows[OURS].items()
    }
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
