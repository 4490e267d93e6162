"""A description of this machine and its runtime for networks."""

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Final

#: Maximum number of threads for running a network: far more would crash LiteRT.
MOST_THREADS: Final = 1024

_CPU_INFO = Path("/proc/cpuinfo")


def machine() -> str:
    """Return the architecture and the processor, if the system names them."""
    return f"{platform.machine()} {_processor()}"


def runtime() -> str:
    """Return the name and the version of the runtime for networks."""
    return f"ai-edge-litert {version('ai-edge-litert')}"


def _processor() -> str:
    if _CPU_INFO.is_file():
        for line in _CPU_INFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"
