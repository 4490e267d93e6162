"""The record on disk of the work on a new package: its phase, and all requested goals."""

import json
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from mistify.files.writing import write_json


class Phase(StrEnum):
    """Phase of the work on a new package."""

    SUBMITTING = "submitting"
    ADAPTING = "adapting"
    DOWNLOADING = "downloading"
    VALIDATING = "validating"
    INSTALLING = "installing"
    PROBATION = "probation"
    ROLLING_BACK = "rolling back"
    KEPT = "kept"
    REJECTED = "rejected"
    ROLLED_BACK = "rolled back"

    @property
    def ended(self) -> bool:
        """True if no work remains."""
        return self in (Phase.KEPT, Phase.REJECTED, Phase.ROLLED_BACK)


class Replacement(BaseModel):
    """A requested new package.

    Attributes:
        goal: The goal's id.
        config: Porting config of the goal, as JSON text. It is stored before it is submitted, so that a crash
            neither loses the goal nor submits it twice.
        key: Idempotency key, with which the config can be resubmitted without effect.
        job: Id of the server's job that goals are added to; None if there is none yet.
        phase: The next phase of the work.
        faster: True if the new package has to be faster than the current one, which is too slow.
        fastest_ms: Milliseconds of the fastest option of the previous package when the new one was installed;
            None if unknown.
        trials: Number of trials started on this device, including trials that crashed the daemon, but not
            those that an unreachable server or a full disk prevented.
        reason: The reason for the current phase.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    goal: str
    config: str
    key: str
    job: str | None = None
    phase: Phase = Phase.SUBMITTING
    faster: bool = True
    fastest_ms: float | None = None
    trials: int = 0
    reason: str = ""

    def at(self, phase: Phase, reason: str, **changes: object) -> "Replacement":
        """Return a copy in another phase.

        Args:
            changes: New values of other attributes.
        """
        return self.model_copy(update={"phase": phase, "reason": reason, **changes})


class Ledger:
    """Record on disk of the current or most recent replacement, and of all requested goals.

    Each goal is requested only once, because a second request would have the same outcome.

    Args:
        path: The file. If its content is invalid, the record starts empty.

    Attributes:
        replacement: The current or most recent replacement; None if there was none.
        asked: Ids of all requested goals.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.replacement: Replacement | None = None
        self.requested: tuple[str, ...] = ()
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            content = json.loads(path.read_bytes())
            asked = tuple(map(str, content["asked"]))
            self.replacement, self.requested = Replacement.model_validate(content["replacement"]), asked

    def save(self, replacement: Replacement) -> None:
        """Write a replacement in its current phase to disk.

        Raises:
            OSError: The file cannot be written; the previous record is kept.
        """
        asked = tuple(dict.fromkeys((*self.requested, replacement.goal)))
        content = {"replacement": replacement.model_dump(mode="json"), "asked": asked}
        write_json(self._path, content, durable=True)
        self.replacement, self.requested = replacement, asked
