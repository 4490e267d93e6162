"""The device side of `factory.speed`: a process that performs one task, and prints its peak memory.

python -m benchmarks.factory.speed_side nothing|load|customize PACKAGE [TASK LIMIT [LATENCY]]
"""

import sys
from pathlib import Path

from benchmarks.elastic.update_side import peak_bytes
from mistify.parsing.quantities import parse_time
from mistify_client.runtime.interpreter import zeros
from mistify_client.runtime.model import load
from mistify_client.slicing.customizing import SliceRequest, customize


def main(what: str, package: str, task: str = "", limit: str = "1", latency: str = "") -> None:
    """Perform the task, and print the peak memory in bytes."""
    if what == "load":
        model = load(package, threads=1)
        model(zeros(model.manifest.inputs))
    if what == "customize":
        request = SliceRequest(task, parse_time(latency) if latency else None, limit=float(limit))
        customize(Path(package), request, threads=1)
    print(peak_bytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
