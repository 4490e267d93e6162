"""Predictions of the latency of slices: the device's, and a regression on gates (NN-Factory 3.5)."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from mmap import mmap
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LinearRegression

from mistify.package.factory import FactoryStore
from mistify.profiling.measuring import best_of_parts_ms, load_network
from mistify.tflite.resizable import resizable
from mistify.tflite.slicing import OpenUnits, sliced
from mistify_client.slicing.latencies import Widths

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

#: The smallest share of open units of a group.
_LEAST: Final = 0.05


class MeasuredSlices(NamedTuple):
    """Random slices and their latencies.

    Attributes:
        gates: Whether each unit is open [slices, units].
        widths: The number of open units of each group, for each slice.
        latencies_ms: Milliseconds [slices].
    """

    gates: Bools
    widths: Sequence[Widths]
    latencies_ms: Floats

    def error(self, predicted_ms: Sequence[float] | Floats) -> float:
        """Return the median error of predictions in per cent."""
        return float(100 * np.median(np.abs(np.asarray(predicted_ms) / self.latencies_ms - 1)))

    def part(self, numbers: slice) -> "MeasuredSlices":
        """Return some of the slices."""
        return MeasuredSlices(self.gates[numbers], self.widths[numbers], self.latencies_ms[numbers])


def random_gates(store: FactoryStore, count: int, seed: int = 0) -> list[list[Bools]]:
    """Return whether units are open [units], for each slice and group.

    All shares of a group are equally likely.
    """
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(count):
        slice_of_it = []
        for group in store.groups:
            gates = rng.random(group.units) < rng.uniform(_LEAST, 1)
            gates[rng.permutation(group.units)[: group.least]] = True
            slice_of_it.append(gates)
        drawn.append(slice_of_it)
    return drawn


def measured_slices(
    store: FactoryStore, supernet: bytes | mmap, count: int, seconds: float
) -> MeasuredSlices:
    """Measure random slices in turns.

    Args:
        store: The description of a factory.
        supernet: Content of its network.
        count: The number of slices.
        seconds: Time for all of them, unless one round takes longer.
    """
    gates = random_gates(store, count)
    contents = [
        resizable(sliced(supernet, store.places, [OpenUnits(np.flatnonzero(group)) for group in one]))
        for one in gates
    ]
    measured = best_of_parts_ms([partial(_loaded, content) for content in contents], seconds)
    widths = [tuple(int(group.sum()) for group in one) for one in gates]
    return MeasuredSlices(
        np.array([np.concatenate(one) for one in gates]), widths, np.array([ms.sum() for ms in measured])
    )


def regression_error(slices: MeasuredSlices, tested: MeasuredSlices) -> float:
    """Return the median error in per cent of a linear regression on the gates of slices (figure 13)."""
    regression = LinearRegression().fit(slices.gates, slices.latencies_ms)
    return tested.error(regression.predict(tested.gates))


def _loaded(content: bytes) -> Callable[[], Sequence[float]]:
    """Load a network, and return its inference, which returns the seconds that it takes."""
    run = load_network(content, threads=1)

    def seconds() -> Sequence[float]:
        began = time.perf_counter()
        run()
        return (time.perf_counter() - began,)

    return seconds
