"""Programs that make networks in a process of their own, while the app keeps running."""

import subprocess
import sys
import threading
from contextlib import suppress


class BackgroundProcess:
    """Runs programs one after the other, each in a separate process.

    In a thread of the app, their work would delay inferences.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def run(self, program: str, *arguments: str) -> str | None:
        """Run a program and wait for its end.

        Args:
            program: The module to run. It is not imported here, because it needs more libraries than
                inference does.

        Returns:
            The reason if it failed, else None.
        """
        try:
            with self._changing:
                if self._stopped:
                    return "it was stopped"
                self._process = process = subprocess.Popen(  # noqa: S603 - Mistify itself
                    [str(sys.executable), "-m", program, *arguments],
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
