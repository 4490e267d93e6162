"""The device side of `other_device`: the command line `mistify`, and the measurement of packages.

    python -m benchmarks.latency.other_device_side mistify ARGUMENT...
    python -m benchmarks.latency.other_device_side measure PACKAGE...

The second command prints the latency of each package in milliseconds, one per line.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path


def main(command: str, arguments: Sequence[str]) -> None:
    """Run a command line of Mistify, or measure packages.

    A real device has its CPU to itself, whereas an emulated one has a share of a busy core. Its clock is
    therefore the CPU time of the process, which replaces the clock before any module imports it.
    """
    time.perf_counter = time.process_time
    from mistify_client.cli.main import app  # noqa: PLC0415
    from mistify_client.profiling import measure_package  # noqa: PLC0415

    if command == "mistify":
        app(arguments)
    for package in arguments:
        print(measure_package(Path(package)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
