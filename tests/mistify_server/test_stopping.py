"""When a server stops."""

import subprocess
import sys
from pathlib import Path

WAITING = """
import asyncio
from mistify_server.stopping import stop_requested
async def serve():
    await stop_requested(with_stdin=True).wait()
asyncio.run(serve())
print("stopped")
"""


def test_a_server_stops_if_its_standard_input_cannot_be_read(tmp_path: Path) -> None:
    """As a terminal that was closed, after which nobody could stop it."""
    with (tmp_path / "written").open("w") as only_written:
        command = [sys.executable, "-c", WAITING]
        done = subprocess.run(command, stdin=only_written, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("stopped\n", "")
