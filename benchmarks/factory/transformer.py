"""Slices of a vision transformer, for tasks that were trained and others (NN-Factory 5.1).

`python -m benchmarks.factory.transformer [--quick] [--json FILE] [--seeds N ...]`

As in `factory.quality`, a network learns 48 of 60 questions about four digits, and all 60 are then asked of
the slices within each limit. The network is a transformer whose feed-forward units have gates
(`benchmarks/factory/networks.py`). Its learning rate is half of the default. `--quick` has little data, few
steps and one seed.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Final

from rich.console import Console

from benchmarks.factory.digits import Extent, four_digits
from benchmarks.factory.networks import quad_vit
from benchmarks.factory.quality import (
    LIMITS,
    QUICK,
    QUICK_STEPS,
    SlicesWithin,
    over_seeds,
    table_of,
    tested_within,
    trained,
)
from benchmarks.harness.run import Figures, Target, add_seeds_option, run_with_one_thread, seeds_of
from executors.algorithms.nnfactory.params import NNFactoryParams

TARGETS: Final[dict[str, Target]] = {
    "known_at_0.25": {"what": "trained tasks, mean, % at 0.25", "min": 95.0, "full_run_only": True},
    "unseen_at_0.25": {
        "what": "tasks that were not trained, mean, % at 0.25",
        "min": 93.0,
        "full_run_only": True,
    },
    "beyond_at_0.25": {"what": "most open units beyond the limit, share at 0.25", "max": 0.0},
}

_SETTINGS: Final = {"learning_rate": 1e-3}


def measure(options: Namespace) -> Figures:
    """Train with each seed, print the tables and return the means over the seeds."""
    values_by_figure: dict[str, list[float]] = {}
    for seed in seeds_of(options):
        tested = tested_seed(seed, options.quick)
        Console().print(table_of(f"seed {seed}", tested))
        for one in tested:
            for name, figure in one.figures.items():
                values_by_figure.setdefault(f"{name}_at_{one.limit:g}", []).append(figure)
    return over_seeds(values_by_figure, options.quick)


def tested_seed(seed: int, quick: bool) -> list[SlicesWithin]:
    """Train a transformer with gates, and test the slices of all tasks within each limit."""
    data = four_digits(seed, QUICK if quick else Extent())
    steps = QUICK_STEPS if quick else {}
    params = NNFactoryParams.model_validate({"seed": seed, **_SETTINGS, **steps})
    supernet = trained(data, params, quad_vit())
    return [tested_within(supernet, data.test, data.unseen, limit) for limit in LIMITS]


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run_with_one_thread("factory.transformer", TARGETS, measure, argv, add_seeds_option)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
