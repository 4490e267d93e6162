"""A monitor in a separate process, next to a benchmark."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mistify_client.monitor.state.state import MonitorState

_STARTING_SECONDS: Final = 60.0


@contextmanager
def monitored(package: Path, config: Path) -> Iterator[None]:
    """Run the monitor for a package within the context."""
    command = [str(Path(sys.executable).with_name("mistify")), "monitor", "--package", str(package)]
    status = MonitorState.of(package).status
    status.unlink(missing_ok=True)
    process = subprocess.Popen([*command, "--config", str(config)], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _STARTING_SECONDS
        while not status.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        yield
        if process.poll() is not None:
            raise ChildProcessError(f"the monitor ended with exit code {process.returncode}")
    finally:
        process.terminate()
        process.wait()
