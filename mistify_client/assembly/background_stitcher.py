"""A process of low priority that stitches the blocks of a subnet, beside the app that runs them."""

import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

#: The program. It is not imported here, as it needs more than running networks does.
_PROGRAM: Final = "mistify_client.assembly.stitching"


class BackgroundStitcher:
    """Stitches one subnet after the other, each in a process of its own.

    In a thread of the app, stitching would hold up inferences.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def stitch(self, package: Path, networks: Path, names: Sequence[str]) -> str | None:
        """Stitch blocks and wait for the end.

        Args:
            package: The version of the package that has the blocks.
            networks: The directory of the stitched networks.
            names: The files of the blocks, from the inputs of the network to its outputs.

        Returns:
            Why it failed; None if it did not.
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
        except (OSError, ValueError) as error:  # an app may have no interpreter to start
            return str(error)
        with process:
            _, errors = process.communicate()
        with self._changing:
            self._process = None
        if process.returncode == 0:
            return None
        return errors.strip().rpartition("\n")[2] or f"the process ended with {process.returncode}"

    def stop(self) -> None:
        """End a process that is at work, and begin no other. What is on the disk stays whole."""
        with self._changing:
            self._stopped = True
            if self._process is not None:
                with suppress(OSError):
                    self._process.kill()
                self._process.wait()
