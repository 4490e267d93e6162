"""Time to build a goal tree and to insert goals (paper 4.3 and 8.3, "modifying the configuration tree").

`python -m benchmarks.porting.goal_tree [--quick] [--json FILE] [--picture FILE]`

Goals have 4 constraints; there are 100 to 100,000 of them. `GoalTree` is compared with a direct
implementation of the definition, which compares all pairs of goals in NumPy, and with networkx, with a graph
of all pairs in which each goal selects its nearest predecessor. (A transitive reduction first would only add
to networkx's time.) All of them must find the same parents. The targets apply to the slowest of several kinds
of goals. The paper built 1,000 goals in 37 ms.

`--quick` skips all pairs above 30,000 goals, and networkx above 3,000.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import networkx as nx
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, Target, median_seconds, paired_ratio, run, seconds
from mistify.jobs.dominance import Floats, Indices, log_sums
from mistify.jobs.goal_tree import GoalTree

TARGETS: Final[dict[str, Target]] = {
    "build_1000_ms": {"what": "building a tree of 1,000 goals, ms", "max": 5},
    "build_100000_s": {"what": "building a tree of 100,000 goals, s", "max": 2},
    "insert_1000_us": {"what": "inserting a goal among 1,000, us", "max": 50},
    "insert_100000_ms": {"what": "inserting a goal among 100,000, ms", "max": 1},
    "different_parents": {"what": "parents that differ from the definition", "max": 0},
}
CONSTRAINTS: Final = 4
SIZES: Final = {100: 30, 300: 30, 1_000: 30, 3_000: 10, 10_000: 3, 30_000: 3, 100_000: 3}
INSERTIONS: Final = 200
FULL_LIMITS: Final = {"all pairs": 100_000, "networkx": 10_000}
QUICK_LIMITS: Final = {"all pairs": 30_000, "networkx": 3_000}

_BLOCK: Final = 16


def independent(goals: int, rng: np.random.Generator) -> Floats:
    """Return independent limits [goals, constraints]."""
    return np.exp(rng.uniform(-2, 2, (goals, CONSTRAINTS)))


def of_devices(goals: int, rng: np.random.Generator) -> Floats:
    """Return limits [goals, constraints] that are correlated, as for devices of different sizes."""
    sizes = rng.uniform(-2, 2, (goals, 1))
    return np.exp(sizes + rng.normal(0, 0.3, (goals, CONSTRAINTS)))


def traded_off(goals: int, rng: np.random.Generator) -> Floats:
    """Return anticorrelated limits [goals, constraints]: hardly any goal is looser than another."""
    limits = rng.normal(0, 1, (goals, CONSTRAINTS))
    limits -= limits.mean(axis=1, keepdims=True)
    return np.exp(limits + rng.normal(0, 0.1, (goals, 1)))


def partly_unlimited(goals: int, rng: np.random.Generator) -> Floats:
    """Return limits [goals, constraints], of which all but the first are missing in half of the goals."""
    limits = independent(goals, rng)
    limits[:, 1:][rng.random((goals, CONSTRAINTS - 1)) < 0.5] = np.inf
    return limits


KINDS: Final = (independent, of_devices, traded_off, partly_unlimited)


class Times(NamedTuple):
    """The times for one kind of goals, in seconds."""

    build: float
    insert: float
    slowest_insert: float


def tree_parents(tree: GoalTree) -> Indices:
    """Return parents [goals], -1 for roots. Goals are distinct, so their numbers are those of the nodes."""
    parents = [tree.parent(node) for node in range(len(tree))]
    return np.array([-1 if parent is None else parent for parent in parents])


def all_pairs(goals: Floats) -> Indices:
    """Return every goal's nearest looser goal [goals] according to the definition."""
    sums = _sums(goals)
    parents = []
    for looser in _looser_goals(goals):
        nearest = np.where(looser, sums, np.inf).argmin(axis=1)
        parents.append(np.where(looser.any(axis=1), nearest, -1))
    return np.concatenate(parents)


def networkx_parents(goals: Floats) -> Indices:
    """Return every goal's nearest predecessor [goals] in a networkx graph of all pairs."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(goals)))
    for block, looser in enumerate(_looser_goals(goals)):
        tight, loose = looser.nonzero()
        graph.add_edges_from(zip(loose.tolist(), (tight + block * _BLOCK).tolist(), strict=True))
    sums = _sums(goals).tolist()
    return np.array(
        [min(graph.pred[goal], key=lambda looser: (sums[looser], looser), default=-1) for goal in graph]
    )


def _sums(goals: Floats) -> Floats:
    """Return the sum for each goal [goals] that determines the nearest of several looser goals."""
    largest = np.where(np.isfinite(goals), goals, 0).max(axis=0)
    return log_sums(goals.T, largest)


def _looser_goals(goals: Floats) -> Iterator[NDArray[np.bool_]]:
    """Yield which goals are looser [few, goals], for as many goals at a time as fit in the cache."""
    columns = np.ascontiguousarray(goals.T)
    for start in range(0, len(goals), _BLOCK):
        few = columns[:, start : start + _BLOCK, None]
        looser = columns[0] >= few[0]
        for column, limits in zip(columns[1:], few[1:], strict=True):
            looser &= column >= limits
        looser[np.arange(len(looser)), start + np.arange(len(looser))] = False  # the goals are distinct
        yield looser


SIDES: Final[dict[str, Callable[[Floats], Indices]]] = {"all pairs": all_pairs, "networkx": networkx_parents}


def measure(options: Namespace) -> Figures:
    """Return all figures; print the two tables and draw the picture."""
    limits = QUICK_LIMITS if options.quick else FULL_LIMITS
    console = Console()
    growth, growth_differences = _growth(limits, console)
    kinds, kind_differences = _kinds(console)
    if options.picture:
        _draw(growth, options.picture)
    figures = {
        f"{side.replace(' ', '_')}_{size}_ms": 1e3 * time
        for side, times in growth.items()
        for size, time in times.items()
    }
    return {
        **figures,
        "build_1000_ms": 1e3 * max(times.build for times in kinds[1_000]),
        "build_100000_s": max(times.build for times in kinds[100_000]),
        "insert_1000_us": 1e6 * max(times.insert for times in kinds[1_000]),
        "insert_100000_ms": 1e3 * max(times.insert for times in kinds[100_000]),
        "different_parents": growth_differences + kind_differences,
    }


def _growth(limits: dict[str, int], console: Console) -> tuple[dict[str, dict[int, float]], int]:
    """Return each side's seconds by the number of goals, and the number of different parents."""
    growth: dict[str, dict[int, float]] = {"tree": {}, **{side: {} for side in SIDES}}
    differences = 0
    table = Table(title="Building: medians in ms, and ratios to the tree's time", title_justify="left")
    for column in ("goals", "tree", *(column for side in SIDES for column in (side, "times"))):
        table.add_column(column, justify="right")
    for size, repetitions in SIZES.items():
        goals = independent(size, np.random.default_rng(size))
        build = partial(GoalTree.build, goals)
        expected = tree_parents(build())
        growth["tree"][size] = median_seconds(build, repetitions)
        row = [f"{size:,}", f"{1e3 * growth['tree'][size]:.3g}"]
        for side, parents in SIDES.items():
            if size > limits[side]:
                row += ["-", "-"]
                continue
            differences += int((parents(goals) != expected).sum())
            pair = paired_ratio(build, partial(parents, goals), repetitions)
            growth[side][size] = pair.b
            row += [f"{1e3 * pair.b:.3g}", f"{pair.ratio:.3g}"]
        table.add_row(*row)
    console.print(table)
    return growth, differences


def _kinds(console: Console) -> tuple[dict[int, list[Times]], int]:
    """Return the times of each kind of goals by their number, and the number of different parents."""
    times: dict[int, list[Times]] = {1_000: [], 100_000: []}
    differences = 0
    table = Table(title="Kinds of goals: building, then inserting one by one", title_justify="left")
    for column in ("goals", "kind", "build, ms", "insert, us", "slowest, us"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for size, of_size in times.items():
        for kind in KINDS:
            goals = kind(size + INSERTIONS, np.random.default_rng(size))
            of_kind, inserted = _build_and_insert(goals, SIZES[size])
            of_size.append(of_kind)
            expected = all_pairs(goals) if size == 1_000 else tree_parents(GoalTree.build(goals))
            differences += int((inserted != expected).sum())
            figures = (1e3 * of_kind.build, 1e6 * of_kind.insert, 1e6 * of_kind.slowest_insert)
            table.add_row(
                f"{size:,}", kind.__name__.replace("_", " "), *(f"{figure:.3g}" for figure in figures)
            )
    console.print(table)
    return times, differences


def _build_and_insert(goals: Floats, repetitions: int) -> tuple[Times, Indices]:
    """Build a tree of all but the last goals, and insert these; return the times and the final parents."""
    first, later = goals[:-INSERTIONS], iter(goals[-INSERTIONS:])
    build = median_seconds(lambda: GoalTree.build(first), repetitions)
    tree = GoalTree.build(first)
    insertions = seconds(lambda: tree.insert(next(later)), INSERTIONS)
    return Times(build, median(insertions), max(insertions)), tree_parents(tree)


def _draw(growth: dict[str, dict[int, float]], file: Path) -> None:
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for side, times in growth.items():
        axes.loglog(list(times), [1e3 * time for time in times.values()], marker="o", label=side)
    axes.loglog([1_000], [37], "k*", label="paper")
    axes.set(xlabel=f"goals of {CONSTRAINTS} constraints", ylabel="time to build [ms]")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=120)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--picture", type=Path, metavar="FILE", help="plot the growth to this PNG file")


if __name__ == "__main__":
    sys.exit(run("porting.goal_tree", TARGETS, measure, sys.argv[1:], add_options))
