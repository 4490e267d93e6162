"""The device side of `elastic.blocks`: a process that loads a network, or none, and prints its memory."""

import sys
from pathlib import Path

from mistify.litert import open_interpreter
from mistify.package.manifest import SIGNATURE
from mistify.tflite.resizable import resizable


def main(*paths: str) -> None:
    """Load networks as a chain does, and print the resident memory of this process in bytes."""
    loaded = []
    for path in paths:
        interpreter = open_interpreter(resizable(Path(path).read_bytes()), 1)
        interpreter.allocate_tensors()
        loaded.append(interpreter.get_signature_runner(SIGNATURE))
    status = Path("/proc/self/status").read_text().splitlines()
    print(next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:")))


if __name__ == "__main__":
    main(*sys.argv[1:])
