"""How accurate a package is at its own precision: measured in LiteRT, not on its checkpoint."""

import time
from dataclasses import dataclass

import numpy as np

from executors.data import Dataset
from mistify_server.packaging.litert import Runner

#: Examples that are run at once, and the seconds after which no more are.
_BATCH = 250
_MAX_SECONDS = 120.0


@dataclass(frozen=True)
class MeasuredAccuracy:
    """A share of the test data told right, and of how many examples."""

    accuracy: float
    examples: int


def measure_accuracy(network: bytes, test: Dataset) -> MeasuredAccuracy:
    """Run a package on the test data, in random order, until all are done or time is up."""
    runner = Runner(network)
    order = np.random.default_rng(0).permutation(len(test))
    deadline = time.monotonic() + _MAX_SECONDS
    right = done = 0
    while done < len(order) and (not done or time.monotonic() < deadline):
        batch = test.subset(order[done : done + _BATCH])
        (outputs,) = runner(dict.fromkeys(runner.inputs, batch.x)).values()
        right += int((outputs.argmax(axis=-1) == batch.y).sum())
        done += len(batch)
    return MeasuredAccuracy(right / done, done)
