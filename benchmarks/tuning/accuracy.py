"""Accuracy of devices that tune alone, with peers, and with an ideal teacher (paper 8.2: Table 3).

`python -m benchmarks.tuning.accuracy --data DIR [--work DIR] [--seeds N ...] [--quick] [--json FILE]
[--picture FILE]`

`benchmarks/tuning/devices.py` describes the devices. Each tunes alone until it converges, and then with a
teacher, until it converges again: the ideal teacher (MLPerf Tiny's pretrained ResNet-8, which was trained on
all of CIFAR-10), or 1, 2 or 4 peers that have tuned alone. Then, as in the paper's step (iv), there are
further rounds with the new models of the 4 peers, as many as the client makes. "Epsilon" marks 4 peers with
models trained from the early weights only on images with Laplacian noise (epsilon 4, 16 or 64 per pixel
value). "Pooled" is each device's network trained on the images of all devices. Figures are means over the
devices, in percent of 2,000 test images with equally frequent classes; for skewed parts also with class
frequencies as on each device, as in its use and its own measurements.

DIR has `cifar10/train.npz`, `cifar10/test.npz` (arrays x, uint8, and y) and `mlperf_tiny/resnet8_cifar10.h5`.
`gap` is the number of points by which tuning alone stays below pooled training, and `gap_closed` the share of
it that 4 peers close after all rounds; useless peers would close 0. With several seeds, all figures are
means.

`--quick` uses one seed, and only measures alone, pooled, and one round with 4 peers on the random parts, at
full size.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Final

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, Target, add_seeds_option, run, seeds_of
from benchmarks.tuning import devices
from benchmarks.tuning.devices import DEVICES, EQUAL, POOLED, SKEWED, Lab, alone, noisy, peers_of, taught
from benchmarks.tuning.run import Plan, Run
from mistify_client.tuning import tuner

EARLY, ALONE, IDEAL = "early weights", "alone", "ideal teacher"
PEERS: Final = (1, 2, 4)
EPSILONS: Final = (4, 16, 64)

#: Names of the rounds with 4 peers: the first one, and the following ones.
ROUNDS: Final = ("4 peers", *(f"round {number}" for number in range(2, tuner.ROUNDS + 1)))

#: Name of the figures for skewed parts with class frequencies as on each device.
OWN: Final = f"{SKEWED}_own"

TARGETS: Final[dict[str, Target]] = {
    f"{part}_{figure}": {"what": f"{part} split: {what}", "min": least, "full_run_only": part != "random"}
    for part in ("random", "dirichlet")
    for figure, what, least in (
        ("gap", "accuracy of pooled training above training alone, points", 10.0),
        ("gap_closed", "share of that gap closed by 4 peers", 0.5),
    )
}

#: Setting -> accuracy of each device.
Accuracies = Mapping[str, Sequence[float]]


def main(argv: Sequence[str] = ()) -> int:
    """Run the benchmark and return the exit code."""
    return run("tuning.accuracy", TARGETS, measure, argv, add_options)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    devices.add_options(parser)
    add_seeds_option(parser)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="plot the accuracies to this PNG file")


def measure(options: Namespace) -> Figures:
    """Measure all settings on both divisions of the data, for each seed."""
    by_seed = []
    for seed in seeds_of(options):
        with devices.lab(options, seed, short=False) as lab:
            by_seed.append(
                essentials(lab) if options.quick else accuracies(lab, EQUAL) | accuracies(lab, SKEWED)
            )
    by_data = over_seeds(by_seed)
    for part, of in by_data.items():
        Console().print(_table(part, of))
    if options.picture:
        _draw(by_data, options.picture)
    return figures_of(by_data)


def over_seeds(by_seed: Sequence[Mapping[str, Accuracies]]) -> dict[str, dict[str, list[float]]]:
    """Return the mean accuracy of each device over the seeds, by test data and setting."""
    return {
        part: {
            kind: [mean(each) for each in zip(*(seed[part][kind] for seed in by_seed), strict=True)]
            for kind in of
        }
        for part, of in by_seed[0].items()
    }


def essentials(lab: Lab) -> dict[str, dict[str, list[float]]]:
    """Return the figures that determine the targets, for random parts and one round."""
    kinds = {ALONE: lab.each(alone(EQUAL)), POOLED: lab.each(alone(POOLED))}
    teachers = [peers_of(device, 4, EQUAL) for device in range(DEVICES)]
    kinds[ROUNDS[0]] = lab.each(taught(EQUAL, ROUNDS[0], teachers))
    return {EQUAL: _each(kinds, "accuracy")}


def accuracies(lab: Lab, part: str) -> dict[str, dict[str, list[float]]]:
    """Return the accuracy of each device in percent, by test data and setting."""
    first = lab.each(alone(part))
    lab.runs([plan for epsilon in EPSILONS for plan in noisy(part, epsilon)])
    settings = {
        **{f"{count} peers": [peers_of(device, count, part) for device in range(DEVICES)] for count in PEERS},
        **{
            f"4 peers, epsilon {epsilon}": [
                peers_of(device, 4, part, f"noisy {epsilon}") for device in range(DEVICES)
            ]
            for epsilon in EPSILONS
        },
    }
    ideal = [
        Plan(part, IDEAL, device, ideal=True, start=Plan(part, ALONE, device).name)
        for device in range(DEVICES)
    ]
    plans = {IDEAL: ideal, **{kind: taught(part, kind, teachers) for kind, teachers in settings.items()}}
    runs = lab.runs([plan for of in plans.values() for plan in of])
    kinds = {ALONE: first} | {kind: [runs[plan.name] for plan in of] for kind, of in plans.items()}
    for before, kind in pairwise(ROUNDS):
        teachers = [peers_of(device, 4, part, before) for device in range(DEVICES)]
        kinds[kind] = lab.each(taught(part, kind, teachers, before))
    pooled = {POOLED: _percent(lab.each(alone(POOLED)), "accuracy")}
    by_data = {part: {EARLY: _percent(first, "began")} | pooled | _each(kinds, "accuracy")}
    if part == SKEWED:
        by_data[OWN] = {EARLY: _percent(first, "own_began")} | _each(kinds, "own_accuracy")
    return by_data


def _each(kinds: Mapping[str, Sequence[Run]], figure: str) -> dict[str, list[float]]:
    return {kind: _percent(runs, figure) for kind, runs in kinds.items()}


def _percent(runs: Sequence[Run], figure: str) -> list[float]:
    return [100 * getattr(run, figure) for run in runs]


def figures_of(by_data: Mapping[str, Accuracies]) -> Figures:
    """Return means; with a pooled network, also the gap to it and the share that peers close."""
    figures: dict[str, float] = {}
    for part, of in by_data.items():
        means = {kind: mean(each) for kind, each in of.items()}
        figures |= {f"{part}_{_word(kind)}": accuracy for kind, accuracy in means.items()}
        if POOLED not in means:
            continue
        gap = means[POOLED] - means[ALONE]
        shares = {kind: (means[kind] - means[ALONE]) / gap if gap else 0.0 for kind in means}
        last = [kind for kind in ROUNDS if kind in means][-1]
        figures |= {f"{part}_gap": gap, f"{part}_gap_closed": shares[last]}
        private = {f"4 peers, epsilon {epsilon}" for epsilon in EPSILONS} & means.keys()
        figures |= {f"{part}_gap_closed_by_{_word(kind)}": shares[kind] for kind in sorted(private)}
    return figures


def _word(kind: str) -> str:
    return kind.replace(",", "").replace(" ", "_")


def _table(part: str, of: Accuracies) -> Table:
    table = Table(title=f"{part} parts: accuracy in percent", title_justify="left")
    for column in ("setting", *(f"device {device}" for device in range(DEVICES)), "mean", "over alone"):
        table.add_column(column, justify="left" if column == "setting" else "right")
    for kind, each in of.items():
        figures = [*each, mean(each)]
        ratio = f"{mean(each) / mean(of[ALONE]):.3f}"
        table.add_row(kind, *(f"{figure:.1f}" for figure in figures), ratio)
    return table


def _draw(by_data: Mapping[str, Accuracies], path: Path) -> None:
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    axes = figure.subplots(1, len(by_data), sharey=True, squeeze=False)[0]
    for axis, (part, of) in zip(axes, by_data.items(), strict=True):
        axis.bar(range(len(of)), [mean(each) for each in of.values()], color="#88aacc")
        for at, each in enumerate(of.values()):
            axis.plot([at] * len(each), each, "k.", markersize=4)
        axis.set_xticks(range(len(of)), list(of), rotation=40, ha="right")
        axis.set_title(f"{part} parts")
    axes[0].set_ylabel("accuracy, %")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
