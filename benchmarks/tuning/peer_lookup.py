"""Time to find the nearest peers, and the recall (paper 5.2).

`python -m benchmarks.tuning.peer_lookup [--quick] [--json FILE] [--picture FILE]`

The index holds 1,000 to 1,000,000 devices, as points made from hints: location, view angle, label histogram.
There are two kinds of fleets: devices in places (about two hundred in each, with similar labels), and devices
with evenly distributed locations and labels. `PeerIndex` in memory chooses its parameters itself. It is
compared with the fastest brute-force search in NumPy (float32, one matrix-vector product that includes the
squared norms, `argpartition`) and with a small-world graph, hnswlib (`pip install -e '.[bench]'`). Queries
are new points near those of some devices, one at a time. The index and the graph answer the same queries,
each alternately with brute force, so that neither finds its data or code in the cache. The reference for
recall is a brute-force search in float64.

Everything runs in one thread (`tuning/pinned.py`), and times are CPU times: on a busy machine, wall-clock
time would include other programs' work for calls longer than a time slice.

The targets apply to the worse of the two kinds. `growth_exponent` is the slope of the lookup time over the
number of devices in a log-log plot, from 10,000 devices on; 1 would be linear growth.

`--quick` ends at 100,000 devices.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from time import thread_time
from typing import Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, MissingDataError, Target, median_seconds, paired_ratio, run
from benchmarks.tuning.pinned import in_one_thread
from mistify_server.tuning.index import PeerIndex
from mistify_server.tuning.storage import MEMORY, IndexStorage

Floats = NDArray[np.float64]

COUNT: Final = 10
QUERIES: Final = 200
INSERTIONS: Final = 200
SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
QUICK_SIZES: Final = (1_000, 10_000, 100_000)

#: hnswlib's parameters: neighbours per node, candidates during construction, and candidates during a lookup.
_NEIGHBOURS, _BUILDING, _LOOKING_UP = 16, 200, 64

TARGETS: Final[dict[str, Target]] = {
    "recall_at_10": {"what": "lowest recall of the ten nearest peers", "min": 0.9},
    "growth_exponent": {"what": "growth exponent of the lookup time with the number of devices", "max": 0.7},
    **{
        figure: {"what": f"{size:,} devices: {what}", bound: value, "full_run_only": size == SIZES[-1]}  # type: ignore[misc]
        for size, faster in ((100_000, 3.0), (1_000_000, 20.0))
        for figure, what, bound, value in (
            (f"times_faster_{size}", "speedup over brute force", "min", faster),
            (f"over_hnswlib_{size}", "lookup time relative to hnswlib", "max", 1.0),
        )
    },
}

_CLASSES: Final = 10
_PLACE: Final = 200
_VIEW_RADIUS: Final = 1.93  # a distance of 1 corresponds to 30 degrees


def in_places(devices: int, rng: np.random.Generator) -> Floats:
    """Return points [devices, 15] of devices in places 300 m wide, with labels typical of the place."""
    places = max(5, devices // _PLACE)
    place = rng.integers(0, places, devices)
    location = rng.uniform(-50, 50, (places, 3))[place] + rng.normal(0, 0.3, (devices, 3))
    shares = rng.dirichlet(np.full(_CLASSES, 0.5), places)[place]
    return np.hstack([location, _view(devices, rng), _labels(shares, rng)])


def spread(devices: int, rng: np.random.Generator) -> Floats:
    """Return points [devices, 15] of devices anywhere, one per square km, all with similar labels."""
    side = np.sqrt(devices)
    location = np.hstack([rng.uniform(0, side, (devices, 2)), np.zeros((devices, 1))])
    shares = np.full((devices, _CLASSES), 1 / _CLASSES)
    return np.hstack([location, _view(devices, rng), _labels(shares, rng)])


def _view(devices: int, rng: np.random.Generator) -> Floats:
    angle = rng.uniform(0, 2 * np.pi, devices)
    return _VIEW_RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _labels(shares: Floats, rng: np.random.Generator) -> Floats:
    """Return histograms [devices, labels] of 200 examples, as in the correlation measure at scale 0.5."""
    return np.sqrt(rng.multinomial(200, shares) / 200 / 2) / 0.5


KINDS: Final = (in_places, spread)


class Outcome(NamedTuple):
    """Results for one kind and number of devices: seconds per lookup, and recall of the nearest devices.

    Brute force in float32 may also miss some of the nearest devices if devices are far apart.
    """

    lookup: float
    brute: float
    times_faster: float
    recall: float
    brute_recall: float
    build: float
    insert: float
    hnsw: float
    over_hnsw: float
    hnsw_recall: float


@dataclass(frozen=True)
class Fleet:
    """Devices by number, and queries with the ten nearest devices of each."""

    points: Floats
    queries: Floats
    nearest: list[set[int]]

    @classmethod
    def of(cls, kind: Callable[[int, np.random.Generator], Floats], devices: int) -> "Fleet":
        """Return a fleet, which is the same in every run."""
        rng = np.random.default_rng(devices)
        points = kind(devices, rng)
        queries = points[rng.choice(devices, QUERIES)] + rng.normal(0, 0.03, (QUERIES, points.shape[1]))
        norms = np.einsum("ij,ij->i", points, points)
        nearest = [
            set(np.argpartition(norms - 2 * (points @ query), COUNT)[:COUNT].tolist()) for query in queries
        ]
        return cls(points, queries, nearest)

    def recall(self, lookup: Callable[[Floats], list[int]]) -> float:
        """Return the share of the ten nearest devices that a lookup finds."""
        pairs = zip(self.queries, self.nearest, strict=True)
        return sum(len(set(lookup(query)) & nearest) for query, nearest in pairs) / COUNT / QUERIES

    def in_turn(self, lookup: Callable[[Floats], list[int]]) -> Callable[[], object]:
        """Return a function that looks up the next query at every call."""
        queries = cycle(self.queries)
        return lambda: lookup(next(queries))


def brute_force(points: Floats) -> Callable[[Floats], list[int]]:
    """Return a lookup of the ten nearest devices that compares all of them."""
    middle = points.mean(axis=0)
    centred = points - middle  # float32 is precise for small values
    norms = np.einsum("ij,ij->i", centred, centred)
    single = np.column_stack([centred, norms]).astype(np.float32)

    def lookup(query: Floats) -> list[int]:
        factors = np.append(-2 * (query - middle), 1).astype(np.float32)
        nearest: list[int] = np.argpartition(single @ factors, COUNT)[:COUNT].tolist()
        return nearest

    return lookup


def hnsw(points: Floats) -> Callable[[Floats], list[int]]:
    """Return a lookup of the ten nearest devices by hnswlib, in one thread."""
    import hnswlib  # noqa: PLC0415 (an optional dependency)

    graph = hnswlib.Index(space="l2", dim=points.shape[1])
    graph.init_index(len(points), M=_NEIGHBOURS, ef_construction=_BUILDING)
    graph.add_items(points, num_threads=1)
    graph.set_ef(_LOOKING_UP)

    def lookup(query: Floats) -> list[int]:
        numbers, _ = graph.knn_query(query, k=COUNT, num_threads=1)
        nearest: list[int] = numbers[0].tolist()
        return nearest

    return lookup


def outcome(fleet: Fleet) -> Outcome:
    """Build, measure and compare; return the results."""
    index = PeerIndex(IndexStorage.of(MEMORY), "fleet", fleet.points.shape[1])
    started = thread_time()
    index.build({_name(number): point for number, point in enumerate(fleet.points)})
    build = thread_time() - started

    def lookup(query: Floats) -> list[int]:
        return [int(member, 16) for member, _ in index.query(query, COUNT)]

    brute = brute_force(fleet.points)
    pair = paired_ratio(fleet.in_turn(lookup), fleet.in_turn(brute), QUERIES, thread_time)
    recall = fleet.recall(lookup)
    newcomers = iter(range(len(fleet.points), len(fleet.points) + INSERTIONS))
    insert = median_seconds(
        lambda: index.insert(_name(next(newcomers)), fleet.queries[0]), INSERTIONS, thread_time
    )
    graph = hnsw(fleet.points)
    rival = paired_ratio(fleet.in_turn(graph), fleet.in_turn(brute), QUERIES, thread_time)
    return Outcome(
        pair.a,
        pair.b,
        pair.ratio,
        recall,
        fleet.recall(brute),
        build,
        insert,
        rival.a,
        pair.a / rival.a,
        fleet.recall(graph),
    )


def _name(number: int) -> str:
    return f"{number:032x}"


def measure(options: Namespace) -> Figures:
    """Return all figures, measured in one thread; print the table and draw the picture."""
    if find_spec("hnswlib") is None:
        raise MissingDataError("hnswlib is not installed: pip install -e '.[bench]'")
    return in_one_thread(_measure, options)


def _measure(options: Namespace) -> Figures:
    sizes = QUICK_SIZES if options.quick else SIZES
    outcomes: dict[str, dict[int, Outcome]] = {}
    table = Table(title="Looking up 10 peers: medians", title_justify="left")
    columns = (
        "kind",
        "devices",
        "index, us",
        "recall",
        "brute, us",
        "recall",
        "times",
        "hnswlib, us",
        "recall",
    )
    for column in (*columns, "index over it", "build, s", "insert, us"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for kind in KINDS:
        name = kind.__name__.replace("_", " ")
        outcomes[name] = {}
        for size in sizes:
            result = outcome(Fleet.of(kind, size))
            outcomes[name][size] = result
            table.add_row(name, f"{size:,}", *_cells(result))
    Console(width=130).print(table)
    if options.picture:
        _draw(outcomes, options.picture)
    return _figures(outcomes)


def _cells(result: Outcome) -> list[str]:
    return [
        f"{1e6 * result.lookup:,.0f}",
        f"{result.recall:.3f}",
        f"{1e6 * result.brute:,.0f}",
        f"{result.brute_recall:.3f}",
        f"{result.times_faster:.3g}",
        f"{1e6 * result.hnsw:,.0f}",
        f"{result.hnsw_recall:.3f}",
        f"{result.over_hnsw:.3g}",
        f"{result.build:.3g}",
        f"{1e6 * result.insert:,.0f}",
    ]


def _figures(outcomes: dict[str, dict[int, Outcome]]) -> Figures:
    """Return the figures; those with a target are the worse of the two kinds."""
    figures: dict[str, float] = {}
    for name, by_size in outcomes.items():
        for size, result in by_size.items():
            prefix = f"{name.replace(' ', '_')}_{size}"
            figures[f"{prefix}_us"] = 1e6 * result.lookup
            figures[f"{prefix}_hnswlib_us"] = 1e6 * result.hnsw
            figures[f"{prefix}_recall"] = result.recall
            figures[f"{prefix}_hnswlib_recall"] = result.hnsw_recall
    every = [result for by_size in outcomes.values() for result in by_size.values()]
    figures["recall_at_10"] = min(result.recall for result in every)
    figures["growth_exponent"] = max(_exponent(by_size) for by_size in outcomes.values())
    for size in SIZES[2:]:
        results = [by_size[size] for by_size in outcomes.values() if size in by_size]
        if results:
            figures[f"times_faster_{size}"] = min(result.times_faster for result in results)
            figures[f"over_hnswlib_{size}"] = max(result.over_hnsw for result in results)
    return figures


def _exponent(by_size: dict[int, Outcome]) -> float:
    sizes = [size for size in by_size if size >= 10_000]
    slope, _ = np.polyfit(np.log(sizes), np.log([by_size[size].lookup for size in sizes]), 1)
    return float(slope)


def _draw(outcomes: dict[str, dict[int, Outcome]], file: Path) -> None:
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, by_size in outcomes.items():
        sizes = list(by_size)
        axes.loglog(sizes, [1e6 * by_size[size].lookup for size in sizes], marker="o", label=f"index, {name}")
    sizes = list(by_size)
    axes.loglog(sizes, [1e6 * by_size[size].brute for size in sizes], marker="s", label="brute force")
    axes.loglog(sizes, [1e6 * by_size[size].hnsw for size in sizes], marker="^", label="hnswlib")
    axes.set(xlabel="devices", ylabel="time of a lookup [us]")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=120)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--picture", type=Path, metavar="FILE", help="plot the growth to this PNG file")


if __name__ == "__main__":
    sys.exit(run("tuning.peer_lookup", TARGETS, measure, sys.argv[1:], add_options))
