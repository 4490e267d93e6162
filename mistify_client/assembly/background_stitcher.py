"""A low-priority process that stitches the blocks of a subnet while the app keeps running them."""

import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

#: The module to run. It is not imported here, because it needs more libraries than inference does.
_PROGRAM: Final = "mistify_client.assembly.stitching"


class BackgroundStitcher:
    """Stitches subnets one after the other, each in a separate process.

    In a thread of the app, stitching would delay inferences.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def stitch(self, package: Path, networks: Path, names: Sequence[str]) -> str | None:
        """Stitch blocks and wait for the result.

        Args:
            package: The package version that contains the blocks.
            networks: The directory for stitched networks.
            names: The files of the blocks, from the inputs of the network to its outputs.

        Returns:
            The reason if it failed, else None.
        """
        command = [str(sys.executable), "-m", _PROGRAM, str(package), str(networks), *names]
        try:
            with self._changing:
                if self._stopped:
                    return "it was stopped"
                self._process = process = subprocess.Popen(  # noqa: S603 - Mistify itself
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
        except (OSError, ValueError) as error:  # an app may not have a Python interpreter to start
            return str(error)
        with process:
            _, errors = process.communicate()
        with self._changing:
            self._process = None
        if process.returncode == 0:
            return None
        return errors.strip().rpartition("\n")[2] or f"the process ended with {process.returncode}"

    def stop(self) -> None:
        """Stop a running process, and start no other. Files on disk stay complete."""
        with self._changing:
            self._stopped = True
            if self._process is not None:
                with suppress(OSError):
                    self._process.kill()
                self._process.wait()
