"""Accuracy of small networks compared with Torch-Pruning, with the same source, data and training steps.

`python -m benchmarks.porting.peer_torch_pruning --data DIR [--steps N] [--seeds N ...] [--quick]
[--json FILE] [--picture FILE]`

MLPerf Tiny's ResNet-8, tuned on CIFAR-10, is cut to shares of its multiply-adds by Mistify, and by
Torch-Pruning in PyTorch, which starts from the same tuned weights. Each goal takes the same number of
training steps, on the same nine tenths of the training file. Both sides also distil from the source,
recalibrate their batch norms on the same images, and are measured on the same test file. They run
alternately.

The peer is trained with each of several learning rates, and with the best of them also after isomorphic
pruning. For each share, the result is that of the most accurate network on the other tenth of the training
file. Figures are means over the seeds; `peer_isomorphic_at_S` is the share of seeds whose network is pruned
isomorphically.

DIR has `cifar10/train.npz`, `cifar10/test.npz` (arrays x, uint8, and y) and `mlperf_tiny/resnet8_cifar10.h5`.
The packages: `pip install -e '.[server,bench,peers]'`. `--quick` measures one share, with one seed, few steps
and two of the learning rates: it shows that everything works, not which side is better.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Final

import keras
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import (
    Figures,
    MissingDataError,
    Target,
    add_data_option,
    add_seeds_option,
    data_with,
    run,
    seeds_of,
)
from benchmarks.harness.worker import FILES, Reached, resnet8
from executors.data import Dataset
from executors.training.evaluation import Evaluation

SHARES: Final = (0.75, 0.5, 0.25, 0.125)
QUICK_SHARES: Final = (0.25,)
PEER, OURS = ("Torch-Pruning", "Mistify")

#: The peer's highest learning rates.
RATES: Final = (0.005, 0.01, 0.02, 0.04, 0.08)
QUICK_RATES: Final = (0.02, 0.04)
_QUICK_STEPS: Final = 100

TARGETS: Final[dict[str, Target]] = {
    "translation_difference": {"what": "difference of the source's outputs in both frameworks", "max": 1e-4},
    "shares_exceeded": {"what": "networks that exceed their share of the multiply-adds", "max": 0},
    **{
        f"margin_at_{share}": {
            "what": f"accuracy above Torch-Pruning at {share}x, points",
            "min": 0,
            "full_run_only": True,
        }
        for share in SHARES
    },
    "mean_margin": {
        "what": "accuracy above Torch-Pruning, mean of four shares, points",
        "min": 1.0,
        "full_run_only": True,
    },
}


#: Side -> results at each share.
Rows = dict[str, dict[float, Reached]]


def measure(options: Namespace) -> Figures:
    """Return all figures; print the tables and draw the picture."""
    data = data_with(FILES, options)
    if find_spec("torch_pruning") is None:
        raise MissingDataError("Torch-Pruning is not installed: pip install -e '.[peers]'")
    of_seeds = [_compared(data, seed, options) for seed in seeds_of(options)]
    figures = {name: mean(of[name] for of, _ in of_seeds) for name in of_seeds[0][0]}
    for name in ("translation_difference", "shares_exceeded"):
        figures[name] = max(of[name] for of, _ in of_seeds)
    if options.picture:
        _draw([rows for _, rows in of_seeds], options.picture)
    return {name: of for name, of in figures.items() if not (options.quick and name.startswith("margin"))}


def _compared(data: Path, seed: int, options: Namespace) -> tuple[dict[str, float], Rows]:
    """Port with a seed on both sides, and print the table; return the figures and the table."""
    from benchmarks.porting import torch_pruner, torch_resnet8  # noqa: PLC0415 (an optional dependency)

    chosen: dict[str, float] = {}
    rows: Rows = {PEER: {}, OURS: {}}
    with TemporaryDirectory() as directory:
        settings = {"seed": seed, **({"source_steps": _QUICK_STEPS} if options.quick else {})}
        ours = resnet8(data, Path(directory), settings)
        source, test = ours.source(), ours.test()
        steps = _QUICK_STEPS if options.quick else options.steps
        peer = torch_pruner.Peer(source, *ours.learning(), seed)
        for share in QUICK_SHARES if options.quick else SHARES:
            best = peer.best(share, steps, QUICK_RATES if options.quick else RATES)
            chosen[f"peer_rate_at_{share}"] = best.rate
            chosen[f"peer_isomorphic_at_{share}"] = float(best.ranking is torch_pruner.Ranking.ISOMORPHIC)
            accuracy = 100 * torch_resnet8.accuracy(best.network, test)
            rows[PEER][share] = Reached(accuracy, best.share, steps, {"all": best.seconds})
            rows[OURS][share] = ours.case(share, steps)
    Console().print(_table(seed, rows))
    figures = {
        "translation_difference": _translation_difference(source, test),
        **chosen,
        **figures_of(rows),
    }
    return figures, rows


def _translation_difference(source: keras.Model, test: Dataset) -> float:
    """Return the largest difference between the outputs of the source and of its translation."""
    from benchmarks.porting import torch_resnet8  # noqa: PLC0415 (an optional dependency)

    images, _ = torch_resnet8.arrays_of(test)
    translated = torch_resnet8.probabilities(torch_resnet8.translated(source), torch_resnet8.tensors(images))
    (expected,) = Evaluation(source).outputs(test.inputs).values()
    return float(np.abs(translated.numpy() - expected).max())


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


def _table(seed: int, rows: Rows) -> Table:
    title = f"Seed {seed}: accuracy on the test file by the share of multiply-adds"
    table = Table(title=title, title_justify="left")
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


def _draw(of_seeds: Sequence[Rows], file: Path) -> None:
    """Plot each side's mean accuracy over the seeds."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for side in of_seeds[0]:
        shares = list(of_seeds[0][side])
        means = [mean(rows[side][share].accuracy for rows in of_seeds) for share in shares]
        axes.semilogx(shares, means, marker="o", label=side)
    axes.set_xticks(SHARES, [f"{share:g}" for share in SHARES])
    axes.minorticks_off()
    axes.set(xlabel="share of the source's multiply-adds", ylabel="accuracy [%]")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=120)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    parser.add_argument("--steps", type=int, default=900, help="training steps per goal")
    add_seeds_option(parser)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="plot the accuracies to this PNG file")


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("porting.peer_torch_pruning", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
