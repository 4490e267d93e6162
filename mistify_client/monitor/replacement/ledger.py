"""The work on a new package, as it is kept on disk: in which phase it is, and what was asked for before."""

import json
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from mistify.files import write_json


class Phase(StrEnum):
    """How far the work on a new package is."""

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
        """Whether nothing is left to do."""
        return self in (Phase.KEPT, Phase.REJECTED, Phase.ROLLED_BACK)


class Replacement(BaseModel):
    """A new package that was asked for.

    Attributes:
        goal: the goal's id.
        config: the text that is submitted. It is written down before it is used, with the key that makes
            submitting it again harmless: no crash leads to a second goal, or loses the first.
        key: see `config`.
        job: the server's job, which goals are added to; None while there is none.
        phase: what has to be done next.
        faster: whether it has to be faster than the package in use, which is too slow.
        fastest_ms: what the fastest branch of the package before takes under the conditions under which the
            new one was installed; None where that is not known.
        trials: how many times it was begun to try the package on this device, by daemons that it may have
            ended.
        reason: why the phase is the present one.
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
        """The same in another phase."""
        return self.model_copy(update={"phase": phase, "reason": reason, **changes})


class Ledger:
    """The replacement that is being worked on, or was last, and every goal that was asked for; kept on disk.

    A goal is asked for once: what came of it the first time would come of it again.

    Args:
        path: of the file. One that says anything else is of no use and is written anew.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.replacement: Replacement | None = None
        self.asked: tuple[str, ...] = ()
        with suppress(OSError, ValueError, ValidationError, KeyError, TypeError):
            content = json.loads(path.read_bytes())
            asked = tuple(map(str, content["asked"]))
            self.replacement, self.asked = Replacement.model_validate(content["replacement"]), asked

    def save(self, replacement: Replacement) -> None:
        """Keep a replacement in its present phase.

        Raises:
            OSError: it cannot be written; the one before stays.
        """
        asked = tuple(dict.fromkeys((*self.asked, replacement.goal)))
        content = {"replacement": replacement.model_dump(mode="json"), "asked": asked}
        write_json(self._path, content, durable=True)
        self.replacement, self.asked = replacement, asked
