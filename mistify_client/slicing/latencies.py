"""The latency of slices on this device, predicted from a few that were measured (NN-Factory 3.5).

The latency of a slice depends on the number of units in each layer, and hardly on which units these are. A
linear function of these numbers, fitted to ten slices, is about as accurate as the paper's function of all
gates, fitted to 200 or more.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError, model_validator

from mistify.files.writing import write_json
from mistify.machine import machine, runtime
from mistify.package.factory import FactoryStore
from mistify.package.manifest import MeasuredLatency
from mistify.package.records import Record, Sha256
from mistify.profiling.measuring import best_ms, best_of_parts_ms, load_network
from mistify.tflite.resizable import read_resizable, resizable
from mistify.tflite.slicing import OpenUnits, sliced
from mistify_client.assembly.memory import return_memory
from mistify_client.files import staging

#: Number of slices to measure, and seconds for each, over several rounds.
_SLICES: Final = 10
SECONDS: Final = 0.15

#: A latency of up to this multiple of the limit is measured again, this many times as long.
_SLIGHTLY: Final = 1.15
_LONGER: Final = 5

#: Runs behind the 95th percentile of a slice's latency.
_RUNS: Final = 50

#: Weight of the prior that equal shares of units take equally long in all groups, relative to a measurement.
_ALIKE: Final = 0.02

#: Lowest prediction, relative to the lowest measured latency.
_LEAST: Final = 0.5

Widths = tuple[Annotated[int, Field(ge=1)], ...]


class SliceLatencies(Record):
    """The latencies of some slices at batch 1, and the conditions of their measurement.

    Attributes:
        format_version: The version of this file's format.
        supernet: SHA-256 of the network that the slices are of.
        machine: The machine of the measurements.
        runtime: Name and version of the runtime of the measurements.
        threads: Number of threads of LiteRT.
        widths: The number of open units of each group, for each slice; the whole network is the first.
        latencies_ms: Milliseconds for each slice.
    """

    format_version: Literal[1] = 1
    supernet: Sha256
    machine: str
    runtime: str
    threads: Annotated[int, Field(ge=1)]
    widths: tuple[Widths, ...] = ()
    latencies_ms: tuple[Annotated[float, Field(gt=0)], ...] = ()

    @model_validator(mode="after")
    def _one_latency_each(self) -> "SliceLatencies":
        if len(self.widths) != len(self.latencies_ms) or len(set(map(len, self.widths))) > 1:
            raise ValueError("expected one latency, and as many widths, for each slice")
        return self

    @property
    def whole_ms(self) -> float:
        """The milliseconds of the whole network."""
        return self.latencies_ms[0]

    def predictor(self) -> Callable[[Widths], float]:
        """Return a function that predicts the milliseconds of a slice from its widths.

        The fit minimizes relative errors. Its prior is that equal shares of units take equally long in all
        groups.
        """
        units = np.array(self.widths[0], float)
        scale = self.whole_ms
        relative = np.array(self.latencies_ms) / scale
        features = np.array([_features(np.array(widths) / units) for widths in self.widths])
        alike = np.hstack([np.zeros((units.size, 2)), np.eye(units.size)]) * _ALIKE
        rows = np.vstack([features / relative[:, None], alike])
        coefficients, *_ = np.linalg.lstsq(rows, np.append(np.ones(len(relative)), np.zeros(units.size)))
        least = _LEAST * float(relative.min())

        def predict(widths: Widths) -> float:
            share = float(_features(np.array(widths) / units) @ coefficients)
            return scale * max(share, least)

        return predict


def _features(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return a constant, the mean share of open units, and the share in each group."""
    return np.concatenate([[1.0, shares.mean()], shares])


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
        seconds: Time for each slice, unless a single run takes longer.
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
        measured = best_of_parts_ms(loads, seconds * len(files))
    table = unmeasured.model_copy(
        update={"widths": tuple(widths), "latencies_ms": tuple(float(ms.sum()) for ms in measured)}
    )
    write_json(file, table.model_dump(mode="json"), durable=True)
    return table


def relative_latency(network: bytes, reference: bytes, threads: int, seconds: float = SECONDS) -> float:
    """Return the latency of a network as a multiple of another one's, at batch 1.

    Both take turns, so that other load on the device affects both.

    Args:
        network: Content of a `.tflite` of a package.
        reference: Content of the other network's `.tflite`.
        seconds: Time for each network, unless a single run takes longer.
    """
    loads = [partial(_loaded, content, threads) for content in (network, reference)]
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
    same = table.model_copy(update={"widths": (), "latencies_ms": ()}) == unmeasured
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


def _loaded(network: Path | bytes, threads: int) -> Callable[[], Sequence[float]]:
    """Load a network, and return its inference, which returns the seconds that it takes."""
    return_memory()  # of another one: the whole network, which is among them, needs most of it
    content = read_resizable(network) if isinstance(network, Path) else resizable(network)
    return _timed(load_network(content, threads))


def _timed(run: Callable[[], object]) -> Callable[[], Sequence[float]]:
    def seconds() -> Sequence[float]:
        began = time.perf_counter()
        run()
        return (time.perf_counter() - began,)

    return seconds
