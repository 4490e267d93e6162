"""The device side of `factory.speed`: a process without TensorFlow that performs a task and prints a figure.

python -m benchmarks.factory.speed_side nothing|load|customize PACKAGE [TASK LIMIT [LATENCY]]
python -m benchmarks.factory.speed_side slices PACKAGE

The first prints its peak memory in bytes, the second the processor time of a slice in seconds.
"""

import sys
from pathlib import Path

from benchmarks.elastic.update_side import peak_bytes
from benchmarks.factory.requests import Requests
from benchmarks.factory.slice_time import slice_seconds
from mistify.parsing.quantities import parse_time
from mistify_client import load
from mistify_client.runtime.interpreter import zeros
from mistify_client.slicing.customizing import SliceRequest, customize, factory_of


def seconds_of_slices(package: Path) -> float:
    """Return the median processor time of slices for random tasks."""
    version, store = factory_of(package)
    supernet, assembler = store.map_supernet(version.directory), store.read_assembler(version.directory)
    return slice_seconds(store, supernet, assembler, Requests(package).task)


def main(what: str, package: str, task: str = "", limit: str = "1", latency: str = "") -> None:
    """Perform the task, and print its figure."""
    if what == "slices":
        print(seconds_of_slices(Path(package)))
        return
    if what == "load":
        model = load(package, threads=1)
        model(zeros(model.manifest.inputs))
    if what == "customize":
        request = SliceRequest(task, parse_time(latency) if latency else None, limit=float(limit))
        customize(Path(package), request, threads=1)
    print(peak_bytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
