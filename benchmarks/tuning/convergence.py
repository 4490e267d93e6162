"""Steps until devices with peers reach the accuracy of tuning alone (paper 8.2: Figure 6(b)).

`python -m benchmarks.tuning.convergence --data DIR [--work DIR] [--seeds N ...] [--quick] [--json FILE]
[--picture FILE]`

`benchmarks/tuning/devices.py` describes the devices. Each tunes from the common early weights until it
converges, once alone, and once with 4 converged peers as the teacher, as if it joined an existing group. A
curve is the mean over the devices of the test accuracy of the best weights so far (according to each device's
own validation data), by steps; a device that has converged keeps its last accuracy. `fewer_steps` is the
factor by which the curve with peers needs fewer steps to reach the final accuracy of the other: the median
over five seeds. It is NaN, which misses the target, if tuning alone gains nothing with one of them.
"""

import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from rich.console import Console

from benchmarks.harness.run import Figures, Target, add_seeds_option, run, seeds_of
from benchmarks.tuning import devices
from benchmarks.tuning.devices import DEVICES, EQUAL, alone, peers_of
from benchmarks.tuning.run import Plan, Run

#: Curves are flat at the end, so that seeds differ by a factor of two: the target is for the median of five.
SEEDS: Final = (0, 1, 2, 3, 4)

TARGETS: Final[dict[str, Target]] = {
    "fewer_steps_of_5_seeds": {
        "what": "4 peers: factor of fewer steps to the accuracy of tuning alone, median of five seeds",
        "min": 3.0,
        "full_run_only": True,
    }
}

Curve = npt.NDArray[np.float64]


def main(argv: Sequence[str] = ()) -> int:
    """Run the benchmark and return the exit code."""
    return run("tuning.convergence", TARGETS, measure, argv, add_options)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    devices.add_options(parser)
    add_seeds_option(parser, SEEDS)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="plot the curves to this PNG file")


def measure(options: Namespace) -> Figures:
    """Measure both curves for each seed; the picture shows those of the first."""
    seeds = [_curves(options, seed) for seed in seeds_of(options)]
    if options.picture:
        _draw(*seeds[0], options.picture)
    per_seed = [figures_of(*curves) for curves in seeds]
    for seed, figures in enumerate(per_seed):
        line = f"seed {seed}, steps to {figures['final_alone']:.1f} %: alone, with 4 peers: {figures}"
        Console().print(line, markup=False)
    if options.quick:
        return {}
    # statistics.median does not propagate NaN
    medians = {name: float(np.median([figures[name] for figures in per_seed])) for name in per_seed[0]}
    least = {"fewer_steps_least": min(figures["fewer_steps"] for figures in per_seed)}
    enough = {"fewer_steps_of_5_seeds": medians["fewer_steps"]} if len(per_seed) >= len(SEEDS) else {}
    return medians | least | enough


def _curves(options: Namespace, seed: int) -> tuple[Curve, Curve, int]:
    """Return the curves alone and with peers, and the steps of a pass."""
    with devices.lab(options, seed, short=options.quick) as lab:
        single = lab.each(alone(EQUAL))
        plans = [
            Plan(EQUAL, "4 peers from the start", device, tuple(peers_of(device, 4, EQUAL)))
            for device in range(DEVICES)
        ]
        together = lab.each(plans)
    return mean_curve(single), mean_curve(together), single[0].steps


def mean_curve(runs: Sequence[Run]) -> Curve:
    """Return the mean accuracy in percent [1 + passes]; the first is before any pass."""
    curves = [(run.began, *run.curve) for run in runs]
    longest = max(map(len, curves))
    kept = [[*curve, *[curve[-1]] * (longest - len(curve))] for curve in curves]
    mean: Curve = 100 * np.mean(kept, axis=0)
    return mean


def figures_of(single: Curve, together: Curve, steps: int) -> Figures:
    """Return the steps of both curves to the end of the first; infinite if the second never reaches it.

    If the first gains nothing, `fewer_steps` is NaN.
    """
    final = single[-1]
    needed, reached = (int(np.argmax(curve >= final - 1e-9)) for curve in (single, together))
    with_peers = reached * steps if together.max() >= final - 1e-9 else math.inf
    return {
        "final_alone": float(final),
        "final_with_peers": float(together[-1]),
        "steps_alone": float(needed * steps),
        "steps_with_peers": float(with_peers),
        "fewer_steps": needed * steps / with_peers if needed else math.nan,
    }


def _draw(single: Curve, together: Curve, steps: int, path: Path) -> None:
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axis = figure.subplots()
    for curve, style, name in ((together, "-", "with 4 peers"), (single, "--", "alone")):
        axis.plot(steps * np.arange(len(curve)), curve, style, label=name)
    axis.axhline(single[-1], color="gray", linewidth=0.5)
    axis.set_xlabel("steps")
    axis.set_ylabel("accuracy, %")
    axis.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
