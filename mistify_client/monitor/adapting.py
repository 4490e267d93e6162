"""Adaptation in a thread of the monitor."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from mistify_client.adapting.loop import AdaptationLoop
from mistify_client.adapting.storage import AdaptationState
from mistify_client.monitor.state.journal import Journal

__all__ = ["BackgroundAdaptation"]

_ABOUT: Final = "adaptation"

#: The lowest priority in Linux, where threads have priorities of their own.
_NICE: Final = 19


class BackgroundAdaptation:
    """Adapts a package in a low-priority thread until it is stopped.

    Args:
        package: The directory of the shipped package.
        every: Seconds between two steps.
        journal: The log for installations and problems.
    """

    def __init__(self, package: Path, every: float, journal: Journal) -> None:
        self._loop = AdaptationLoop(package, self._note)
        self._every, self._journal = every, journal
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mistify-adaptation", daemon=True)
        self._thread.start()

    @property
    def state(self) -> AdaptationState | None:
        """The last state; None before the first step, or while the package cannot be adapted."""
        return self._loop.state

    def stop(self) -> None:
        """Stop after the current step; statistics and versions stay."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(OSError):  # the system has no priorities
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while not self._stopped.is_set():
            try:
                self._loop.step()
            except Exception as error:  # no failure of a package or of LiteRT may end the adaptation
                self._journal.problem(_ABOUT, str(error))
            else:
                self._journal.problem(_ABOUT, None)
            self._stopped.wait(self._every)
        self._loop.close()

    def _note(self, event: str, reason: str, figures: dict[str, Any]) -> None:
        self._journal.note(_ABOUT, f"{event}, because {reason}", action=event, **figures)
