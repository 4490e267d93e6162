"""One side of `loaded_memory`: a process that runs batches of a package on request."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mistify.litert import Interpreter
from mistify.package.manifest import NETWORK, SIGNATURE
from mistify_client import load

FEATURES: Final = 1024

#: A function that returns the outputs for an array [batch, FEATURES].
Run = Callable[[npt.NDArray[np.float32]], object]


class InterpreterForEachSize:
    """The network of a package in one interpreter per batch size, opened by LiteRT with default settings."""

    def __init__(self, package: Path) -> None:
        self._content = (package / NETWORK).read_bytes()
        self._runners: dict[int, Any] = {}

    def __call__(self, values: npt.NDArray[np.float32]) -> object:
        """Return the outputs."""
        size = len(values)
        if size not in self._runners:
            interpreter = Interpreter(model_content=self._content, num_threads=1)
            self._runners[size] = interpreter.get_signature_runner(SIGNATURE)
        return self._runners[size](features=values)


def main(way: str, package: Path) -> None:
    """Answer each input line, which contains the batch sizes to run in turn, and the number of calls.

    The answer contains the median CPU time in microseconds, and the bytes of memory that the package uses.
    """
    before = _private_bytes()
    run: Run = load(package, threads=1) if way == "load" else InterpreterForEachSize(package)
    for line in sys.stdin:
        sizes, calls = json.loads(line)
        values = [np.random.default_rng(0).uniform(size=(size, FEATURES)).astype("f4") for size in sizes]
        seconds = [_seconds(run, values) for _ in range(calls)]
        answer = {"us": 1e6 * median(seconds), "bytes": _private_bytes() - before}
        print(json.dumps(answer), flush=True)


def _seconds(run: Run, batches: list[npt.NDArray[np.float32]]) -> float:
    start = process_time()
    for values in batches:
        run(values)
    return process_time() - start


def _private_bytes() -> int:
    """Return the bytes of private memory of this process."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(
        int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty:", "Private_Clean:"))
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
