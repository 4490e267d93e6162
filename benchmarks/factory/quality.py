"""Slices for tasks and limits, of tasks that were trained and of others (NN-Factory 5.2, 5.4).

`python -m benchmarks.factory.quality [--quick] [--json FILE] [--side NAME] [--seeds N ...]`

A network learns questions about four digits (`benchmarks/factory/digits.py`): 48 of 60 are trained, and
further ones about other sets of digits; 12 are not, nor is any that is one of them in other words. Each of
the 60 is then asked of the slice that the assembler makes for it within each limit, on images of digits that
are in no training image; half of the answers are yes, and all counts of digits are as frequent as the answer
allows. Scores are balanced accuracies in per cent.

Besides the settings by default, it is trained with gates alone, as in the paper, whose slices know their task
by their open units; with the paper's names and several gaters as well, where odd and even are properties of
their own and no further questions are trained; and with the noise of the original SemHash. `--quick` has
little data, few steps and one seed.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean
from typing import Final

import keras
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

from benchmarks.factory.digits import NAMED, Extent, FourDigits, Ints, four_digits, with_names_as_values
from benchmarks.factory.networks import quad_resnet
from benchmarks.harness.run import Figures, Target, add_seeds_option, run_with_one_thread, seeds_of
from executors.algorithms.nnfactory.executor import NNFactoryExecutor
from executors.algorithms.nnfactory.params import NNFactoryParams
from executors.algorithms.nnfactory.supernet import Supernet
from executors.contract.assignment import Assignment
from executors.contract.preparation import PreparationProgress
from executors.data import Dataset
from executors.structure import analyse
from executors.training.setup import TrainingSetup

LIMITS: Final = (0.05, 0.1, 0.25, 0.5)

DEFAULT, GATES_ALONE, PAPER, NOISE = "default", "gates alone", "paper", "noise"

#: The settings of each side.
SIDES: Final[Mapping[str, Mapping[str, bool | int]]] = {
    DEFAULT: {},
    GATES_ALONE: {"modulate": False},
    PAPER: {"modulate": False, "gaters": 4},
    NOISE: {"noise": True},
}

TARGETS: Final[dict[str, Target]] = {
    f"{figure}_at_{limit:g}": {
        "what": f"{what} at {limit:g}",
        bound: value,  # type: ignore[misc]
        "full_run_only": figure != "beyond",
    }
    for limit in LIMITS
    for figure, what, bound, value in (
        ("known", "trained tasks, mean, %", "min", 92.0 if limit == 0.05 else 97.0),
        ("unseen", "tasks that were not trained, mean, %", "min", 89.0 if limit == 0.05 else 96.0),
        *([("lowest", "the lowest task, %", "min", 85.0)] if limit > 0.05 else []),
        ("beyond", "most open units beyond the limit, share", "max", 0.0),
        *([("alike", "alike tasks have alike gates, Spearman", "min", 0.5)] if limit > 0.05 else []),
    )
}

QUICK: Final = Extent(train=600, validated=200, tested=4, extra=40)
QUICK_STEPS: Final = {"answer_steps": 16, "gate_steps": 16}


@dataclass(frozen=True)
class SlicesWithin:
    """The slices of all 60 tasks within a limit.

    Attributes:
        limit: The largest share of open units.
        scores: Balanced accuracy of each in per cent [60].
        unseen: Indices of the tasks that were not trained.
        gates: Whether each unit is open [60, units].
        tasks: Properties of each [60].
    """

    limit: float
    scores: npt.NDArray[np.float64]
    unseen: Ints
    gates: npt.NDArray[np.bool_]
    tasks: Sequence[Sequence[str]]

    @property
    def figures(self) -> dict[str, float]:
        """The figures by name, without the limit."""
        known = np.delete(self.scores, self.unseen)
        return {
            "known": float(known.mean()),
            "unseen": float(self.scores[self.unseen].mean()),
            "lowest": float(self.scores.min()),
            "lowest_unseen": float(self.scores[self.unseen].min()),
            "open": float(self.gates.mean()),
            "beyond": float(max(0.0, self.gates.mean(axis=1).max() - self.limit)),
            "alike": alikeness(self.gates, self.tasks),
        }


def measure(options: Namespace) -> Figures:
    """Train each side with each seed, print the tables and return the means over the seeds."""
    values_by_figure: dict[str, list[float]] = {}
    for seed in seeds_of(options):
        for side in [options.side] if options.side else SIDES:
            tested = tested_side(side, seed, options.quick)
            Console().print(table_of(f"{side}, seed {seed}", tested))
            prefix = "" if side == DEFAULT else f"{side.replace(' ', '_')}_"
            for one in tested:
                for name, figure in one.figures.items():
                    values_by_figure.setdefault(f"{prefix}{name}_at_{one.limit:g}", []).append(figure)
    return over_seeds(values_by_figure, options.quick)


def tested_side(side: str, seed: int, quick: bool) -> list[SlicesWithin]:
    """Train a supernet, and test the slices of all tasks within each limit."""
    data = four_digits(seed, QUICK if quick else Extent())
    if side == PAPER:
        data = with_names_as_values(data)
    steps = QUICK_STEPS if quick else {}
    params = NNFactoryParams.model_validate({"seed": seed, **steps, **SIDES[side]})
    supernet = trained(data, params, quad_resnet())
    return [tested_within(supernet, data.test, data.unseen, limit) for limit in LIMITS]


def trained(data: FourDigits, params: NNFactoryParams, model: keras.Model) -> Supernet:
    """Return the supernet that the algorithm prepares of a network with random weights."""
    setup = TrainingSetup(data.train, data.validation, None, params)
    assignment = Assignment(model, {}, (), setup, params.seed, analyse(model))
    keras.utils.set_random_seed(params.seed)
    content = NNFactoryExecutor(params).prepare(assignment, PreparationProgress())
    return Supernet.loaded(content, assignment.source)


def tested_within(supernet: Supernet, test: Dataset, unseen: Ints, limit: float) -> SlicesWithin:
    """Test the slices of all tasks within a limit.

    Args:
        test: Test data, whose space lists the tasks that are not trained as well.
    """
    if test.space is None:
        raise ValueError("the test data have no tasks")
    scores, gates, tasks = [], [], []
    for task in list(test.space.listed)[:NAMED]:
        data = test.of_task(task)
        (assembly,) = supernet.assemblies(test.space.encode(task), [limit])
        answered_yes = supernet.outputs(data.inputs, assembly).ravel() > 0.5
        is_yes = data.targets["answer"].ravel() == 1
        scores.append(50 * (answered_yes[is_yes].mean() + (~answered_yes[~is_yes]).mean()))
        gates.append(np.concatenate([*assembly.open.values()]))
        tasks.append(task.properties)
    return SlicesWithin(limit, np.array(scores), unseen, np.array(gates), tasks)


def alikeness(gates: npt.NDArray[np.bool_], tasks: Sequence[Sequence[str]]) -> float:
    """Return the rank correlation of common units and common properties over all pairs of tasks.

    Common units are a Jaccard index (figure 15 of the paper shows it), common properties a count.
    """
    pairs = list(combinations(range(len(tasks)), 2))
    of_gates = [_jaccard(gates[a], gates[b]) for a, b in pairs]
    of_tasks = [len(set(tasks[a]) & set(tasks[b])) for a, b in pairs]
    return float(spearmanr(of_gates, of_tasks).statistic)


def _jaccard(one: npt.NDArray[np.bool_], other: npt.NDArray[np.bool_]) -> float:
    return float((one & other).sum() / (one | other).sum())


def over_seeds(values_by_figure: Mapping[str, Sequence[float]], quick: bool) -> dict[str, float]:
    """Return the figures of all seeds; after the short training of a quick run only those on limits."""
    return {
        name: _over_seeds(name, own)
        for name, own in values_by_figure.items()
        if not quick or "beyond" in name
    }


def _over_seeds(name: str, figures: Sequence[float]) -> float:
    """Return the worst of what has to hold for each seed, and the mean of everything else."""
    if "beyond_at_" in name:
        return max(figures)
    return min(figures) if "lowest" in name else mean(figures)


def table_of(title: str, tested: Sequence[SlicesWithin]) -> Table:
    """Return a table of the figures, with a row for each limit."""
    table = Table(title=title, title_justify="left")
    columns = {
        "limit": "",
        "known": ".1f",
        "unseen": ".1f",
        "lowest": ".0f",
        "lowest_unseen": ".0f",
        "open": ".3f",
        "alike": ".2f",
    }
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for one in tested:
        row = {"limit": one.limit, **one.figures}
        table.add_row(*(format(row[column], form) for column, form in columns.items()))
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--side", choices=[*SIDES], help="one side alone")
    add_seeds_option(parser)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run_with_one_thread("factory.quality", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
