"""The device of `other_device`: the command line `mistify` there, and the measurement of packages.

    python -m benchmarks.latency.other_device_side mistify ARGUMENT...
    python -m benchmarks.latency.other_device_side measure PACKAGE...

The second prints a line for each package: its latency in milliseconds.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path


def main(command: str, arguments: Sequence[str]) -> None:
    """Run a command line of Mistify, or measure packages.

    A device has its processor to itself, an emulated one has a share of a busy core. So its clock is its
    processor time, replaced before any module imports the clock.
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
