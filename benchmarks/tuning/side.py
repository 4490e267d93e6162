"""One side of `tuning.step`: a process that runs steps on request and reports their time."""

import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

#: The file with the paths of the trained variables.
TRAINED: Final = "trained.json"

CLASSES: Final = 10
RATE: Final = 1e-3
KD_WEIGHT: Final = 0.5


class Batch(NamedTuple):
    """Images [size, 32, 32, 3], classes [size], and a teacher's probabilities [size, classes]."""

    images: npt.NDArray[np.float32]
    classes: npt.NDArray[np.int32]
    taught: npt.NDArray[np.float32]


def random_batch(size: int) -> Batch:
    """Return the batch on which both sides are trained."""
    rng = np.random.default_rng(0)
    taught = rng.dirichlet(np.ones(CLASSES), size).astype(np.float32)
    images = rng.normal(size=(size, 32, 32, 3)).astype(np.float32)
    return Batch(images, rng.integers(0, CLASSES, size).astype(np.int32), taught)


def serve(step: Callable[[], object]) -> None:
    """Run the requested numbers of steps and print their seconds; for 0, print the peak memory in MB."""
    for line in sys.stdin:
        steps = int(line)
        start = perf_counter()
        for _ in range(steps):
            step()
        seconds = perf_counter() - start
        print(seconds if steps else _most_memory(), flush=True)


def _most_memory() -> float:
    """Return peak memory in MB; `getrusage` would include the memory of the parent process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))
