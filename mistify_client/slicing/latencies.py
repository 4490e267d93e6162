"""The latency of slices on this device, predicted from a few that were measured (NN-Factory 3.5).

The latency of a slice depends on the number of units in each layer, and hardly on which units these are. A
function of the multiply-adds and of these numbers, fitted to ten slices, is as accurate as the paper's
function of all gates, fitted to 200 or more.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError, model_validator

from mistify.files.writing import write_json
from mistify.machine import machine, runtime
from mistify.package.factory import FactoryStore
from mistify.package.manifest import MeasuredLatency
from mistify.package.records import Record, Sha256
from mistify.profiling.measuring import TimedLoading, best_ms, best_of_parts_ms, load_network
from mistify.tflite.resizable import read_resizable, resizable
from mistify.tflite.slicing import OpenUnits, sliced
from mistify_client.assembly.memory import return_memory
from mistify_client.files import staging
from mistify_client.slicing.products import Ints, SlicedProduct, sliced_products

#: Seconds for measuring a slice, over several rounds.
SECONDS: Final = 0.15

#: Number of slices by which all others are predicted. They are measured again until that lowers none of their
#: latencies by more than a share, but not more often than this.
_SLICES: Final = 10
_SAME: Final = 0.03
_MOST_OFTEN: Final = 6

#: A latency of up to this multiple of the limit is measured again, this many times as long.
_SLIGHTLY: Final = 1.15
_LONGER: Final = 5

#: Runs behind the 95th percentile of a slice's latency.
_RUNS: Final = 50

#: Weight of the prior that a multiply-add takes equally long everywhere, relative to a measurement.
_ALIKE: Final = 1.0

#: Numbers of output channels that processors may compute at once.
_TILES: Final = (1, 4, 8, 16, 32)

#: Lowest prediction, relative to the lowest measured latency.
_LEAST: Final = 0.5

Floats = npt.NDArray[np.float64]

Widths = tuple[Annotated[int, Field(ge=1)], ...]


class SliceLatencies(Record):
    """The latencies of some slices at batch 1, and the conditions of their measurement.

    Attributes:
        format_version: The version of this file's format.
        supernet: SHA-256 of the network that the slices are of.
        machine: The machine of the measurements.
        runtime: Name and version of the runtime of the measurements.
        threads: Number of threads of LiteRT.
        products: The products of the network that shrink in slices.
        widths: The number of open units of each group, for each slice; the whole network is the first.
        latencies_ms: Milliseconds for each slice.
    """

    format_version: Literal[2] = 2
    supernet: Sha256
    machine: str
    runtime: str
    threads: Annotated[int, Field(ge=1)]
    products: tuple[SlicedProduct, ...] = ()
    widths: tuple[Widths, ...] = ()
    latencies_ms: tuple[Annotated[float, Field(gt=0)], ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> "SliceLatencies":
        if len(self.widths) != len(self.latencies_ms) or len(set(map(len, self.widths))) > 1:
            raise ValueError("expected one latency, and as many widths, for each slice")
        groups = set(range(len(self.widths[0]))) if self.widths else set()
        if any(not product.groups <= groups for product in self.products):
            raise ValueError("a product shrinks with a group that the slices do not have")
        return self

    @property
    def whole_ms(self) -> float:
        """The milliseconds of the whole network."""
        return self.latencies_ms[0]

    def predicted_ms(self, widths: Sequence[Widths]) -> Floats:
        """Return the predicted milliseconds of slices [slices].

        The prediction is linear in the work of the products and in the share of units of each group, and
        minimizes relative errors. Its prior is that work takes equally long in all products. Work is counted
        in the tiles that fit best.

        Args:
            widths: The number of open units of each group, for each slice; at least one slice.
        """
        fit = min((self._fit(tile) for tile in _TILES), key=lambda fit: fit.error)
        predicted = self.whole_ms * (self._features(widths, fit.tile) @ fit.coefficients)
        return np.maximum(predicted, _LEAST * min(self.latencies_ms))

    def _fit(self, tile: int) -> "_Fit":
        """Fit a function to the measurements, with work counted in tiles of a size."""
        relative = np.array(self.latencies_ms) / self.whole_ms
        features = self._features(self.widths, tile)
        groups = len(self.widths[0])
        alike = np.hstack([np.zeros((groups, 2)), np.eye(groups)]) * _ALIKE
        rows = np.vstack([features / relative[:, None], alike])
        wanted = np.append(np.ones(len(relative)), np.zeros(groups))
        coefficients, *_ = np.linalg.lstsq(rows, wanted)
        return _Fit(tile, coefficients, float(np.linalg.norm(rows @ coefficients - wanted)))

    def _features(self, widths: Sequence[Widths], tile: int) -> Floats:
        """Return features of slices [slices, features].

        These are a constant, the share of the whole network's work, and the share of units of each group.
        """
        own, units = np.array(widths).T, np.array(self.widths[:1]).T
        work, whole = self._work(units - own, tile), self._work(0 * units, tile)
        return np.vstack([np.ones(len(widths)), work / np.maximum(whole, 1), own / units]).T

    def _work(self, closed: Ints, tile: int) -> Ints:
        """Return the work of the products of slices [slices], by their closed units [groups, slices]."""
        nothing = np.zeros(closed.shape[1:], np.int64)
        return sum((product.work(closed, tile) for product in self.products), start=nothing)


class _Fit(NamedTuple):
    """A function of features that was fitted to measurements.

    Attributes:
        tile: The tile of the work in the features.
        error: The norm of its errors and of its departure from the prior.
    """

    tile: int
    coefficients: npt.NDArray[np.floating[Any]]
    error: float


def slice_latencies(
    store: FactoryStore,
    network: bytes | mmap,
    state: Path,
    threads: int,
    *,
    seconds: float = SECONDS,
    on_progress: Callable[[str], None],
) -> SliceLatencies:
    """Return the latencies of some slices, measured unless they have been under the same conditions.

    Args:
        network: Content of the supernet's `.tflite`.
        state: The directory for the table, which is written once it is complete.
        seconds: Time of measuring each slice, at least twice, unless a single run takes longer.
        on_progress: Called with a line before anything is measured.

    Raises:
        OSError: The table cannot be written.
    """
    file = state / f"latency-{threads}.json"
    unmeasured = SliceLatencies(
        supernet=store.supernet.sha256, machine=machine(), runtime=runtime(), threads=threads
    )
    if (kept := _kept(file, unmeasured)) is not None:
        return kept
    widths = list(_drawn_widths(store))
    on_progress(f"measuring {len(widths)} slices")
    with staging(state / "measuring") as directory:
        files = _written(store, network, widths, directory)
        loads = [partial(_loaded, file, threads) for file in files]
        measured = _settled_ms(loads, seconds * len(loads))
    table = unmeasured.model_copy(
        update={
            "products": tuple(sliced_products(network, store.places, len(store.groups))),
            "widths": tuple(widths),
            "latencies_ms": tuple(measured.tolist()),
        }
    )
    write_json(file, table.model_dump(mode="json"), durable=True)
    return table


def relative_latency(
    network: Path | bytes, reference: Path | bytes, threads: int, seconds: float = SECONDS
) -> float:
    """Return the latency of a network as a multiple of another one's, at batch 1.

    Both take turns. On a busy device, a single thread is timed by its processor time: a network that runs
    longer than a time slice would never run without interruption.

    Args:
        network: A `.tflite` of a package, or its content.
        reference: The other network, in the same form.
        seconds: Time for each network, unless a single run takes longer.
    """
    clock = time.thread_time if threads == 1 else time.perf_counter
    loads = [partial(_loaded, one, threads, clock) for one in (network, reference)]
    own, other = best_of_parts_ms(loads, seconds * len(loads))
    return float(own.sum() / other.sum())


def measured_latency(
    network: Path, threads: int, seconds: float = SECONDS, most_ms: float | None = None
) -> MeasuredLatency:
    """Return the latency of a network at batch 1 in the best of several rounds.

    Other load on the device only adds to it. So a network that is slightly slower than allowed is measured
    longer.

    Args:
        network: A `.tflite` of a package.
        seconds: Time for all rounds, unless a single run takes longer.
        most_ms: The milliseconds that are allowed; None for any number.
    """
    load = partial(load_network, read_resizable(network), threads)
    median_ms = best_ms(load, seconds)
    if most_ms is not None and most_ms < median_ms <= _SLIGHTLY * most_ms:
        median_ms = min(median_ms, best_ms(load, _LONGER * seconds))
    run = _timed(load())
    p95_ms = 1e3 * float(np.percentile([run() for _ in range(_RUNS)], 95))
    return MeasuredLatency(
        median_ms=median_ms,
        p95_ms=max(p95_ms, median_ms),
        runs=_RUNS,
        threads=threads,
        machine=machine(),
        runtime=runtime(),
    )


def _kept(path: Path, unmeasured: SliceLatencies) -> SliceLatencies | None:
    """Return the table of a file; None if there is none for these conditions."""
    try:
        table = SliceLatencies.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):  # what cannot be read is measured again
        return None
    same = table.model_copy(update={"products": (), "widths": (), "latencies_ms": ()}) == unmeasured
    return table if same and table.widths else None


def _drawn_widths(store: FactoryStore) -> Iterator[Widths]:
    """Yield the widths of slices: all units, the least ones, and numbers between that are evenly spread."""
    units, least = (np.array([getattr(group, name) for group in store.groups]) for name in ("units", "least"))
    yield tuple(units.tolist())
    yield tuple(least.tolist())
    rng, between = np.random.default_rng(0), np.arange(1, _SLICES - 1) / (_SLICES - 1)
    shares = np.stack([rng.permutation(between) for _ in store.groups], axis=1)
    for row in shares:
        yield tuple(np.round(least * (units / least) ** row).astype(int).tolist())


def _settled_ms(loads: Sequence[TimedLoading], budget_seconds: float) -> Floats:
    """Return the latencies of networks once another measurement hardly lowers them.

    On a busy device, the first measurement may miss the moments without other load.
    """
    settled = _measured_ms(loads, budget_seconds)
    for _ in range(_MOST_OFTEN - 1):
        before, settled = settled, np.minimum(settled, _measured_ms(loads, budget_seconds))
        if np.all(settled >= (1 - _SAME) * before):
            break
    return settled


def _measured_ms(loads: Sequence[TimedLoading], budget_seconds: float) -> Floats:
    return np.array([ms.sum() for ms in best_of_parts_ms(loads, budget_seconds)])


def _written(
    store: FactoryStore, network: bytes | mmap, widths: Sequence[Widths], directory: Path
) -> list[Path]:
    """Cut slices with the first units of each group, and return their files: memory has room for one."""
    classes = (len(store.classes),) if store.classes else ()
    files = [directory / f"{number}.tflite" for number, _ in enumerate(widths)]
    for file, counts in zip(files, widths, strict=True):
        units = [OpenUnits(np.arange(count)) for count in (*counts, *classes)]
        file.write_bytes(sliced(network, store.places, units))
    return files


def _loaded(
    network: Path | bytes, threads: int, clock: Callable[[], float] = time.perf_counter
) -> Callable[[], Sequence[float]]:
    """Load a network, and return its inference, which returns the seconds that it takes."""
    return_memory()  # of another one: the whole network, which is among them, needs most of it
    content = read_resizable(network) if isinstance(network, Path) else resizable(network)
    return _timed(load_network(content, threads), clock)


def _timed(
    run: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> Callable[[], Sequence[float]]:
    def seconds() -> Sequence[float]:
        began = clock()
        run()
        return (clock() - began,)

    return seconds
