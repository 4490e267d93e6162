"""How far a tuning is, in a file that a crash at any moment leaves with the old or the new content."""

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from mistify.files import write_bytes
from mistify_client.tuning.fitting import Course, Score
from mistify_client.tuning.trainer import Weights

_HEADER: Final = "progress"


class Stage(StrEnum):
    """What a tuning has to do next; paper 5.1 counts the steps from (i) to (iv)."""

    #: (i) Tune on the own data.
    LOCAL = "alone"
    #: Train the model that is published on noisy data.
    NOISY = "on noisy data"
    #: (ii) Publish, and get the models of peers.
    EXCHANGE = "exchange"
    #: (iii) Tune with the peers as the teacher.
    TAUGHT = "with peers"
    #: Make the best weights the current version of the package.
    INSTALL = "install"


@dataclass(frozen=True)
class TuningProgress:
    """How far a tuning is.

    Attributes:
        stage: what has to be done next.
        began: how the network did at first.
        course: of the network's training; its best weights are the best of all so far.
        round: how often peers have taught.
        before: the best score before the round.
        noisy: of the training on noisy data; None where there is none.
        teachers: the outputs of the peers that teach in this round, by `PeerOutputs.key`.
    """

    stage: Stage
    began: Score
    course: Course
    round: int = 0
    before: Score | None = None
    noisy: Course | None = None
    teachers: tuple[str, ...] = ()

    def at(self, stage: Stage, **changes: object) -> "TuningProgress":
        """The same in another stage."""
        return replace(self, stage=stage, **changes)  # type: ignore[arg-type]


class _Course(BaseModel):
    """All of a course but its weights."""

    model_config = ConfigDict(extra="forbid")
    best: Score
    floor: Score
    peak: float
    lowest: float
    examples: int
    passes: int
    idle: int
    slowed: int


class _Header(BaseModel):
    model_config = ConfigDict(extra="forbid")
    of: str
    stage: Stage
    began: Score
    round: int
    before: Score | None
    courses: dict[str, _Course]
    teachers: tuple[str, ...]


class ProgressFile:
    """Keeps the progress of a tuning.

    Args:
        path: of the file.
        of: what is tuned on what; the progress of anything else is forgotten.
    """

    def __init__(self, path: Path, of: str) -> None:
        self._path = path
        self._of = of

    def load(self) -> TuningProgress | None:
        """The progress; None where there is none of this tuning."""
        try:
            with safe_open(str(self._path), framework="numpy") as file:
                header = _Header.model_validate_json((file.metadata() or {}).get(_HEADER, ""))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        except (OSError, SafetensorError, ValidationError):
            return None
        if header.of != self._of:
            return None
        courses = {name: _course(name, course, tensors) for name, course in header.courses.items()}
        return TuningProgress(
            stage=header.stage,
            began=header.began,
            course=courses["own"],
            round=header.round,
            before=header.before,
            noisy=courses.get("noisy"),
            teachers=header.teachers,
        )

    def save(self, progress: TuningProgress) -> None:
        """Keep a progress in place of the one before.

        Raises:
            OSError: it cannot be written; the one before stays.
        """
        courses = {"own": progress.course, **({"noisy": progress.noisy} if progress.noisy else {})}
        tensors = {
            f"{course}/{which}/{name}": np.ascontiguousarray(values)
            for course, of in courses.items()
            for which, weights in (("best", of.best_weights), ("last", of.weights))
            for name, values in weights.items()
        }
        header = {
            "of": self._of,
            "stage": progress.stage,
            "began": progress.began,
            "round": progress.round,
            "before": progress.before,
            "courses": {
                name: {field: getattr(of, field) for field in _Course.model_fields}
                for name, of in courses.items()
            },
            "teachers": progress.teachers,
        }
        write_bytes(self._path, save(tensors, {_HEADER: json.dumps(header)}), durable=True)

    def remove(self) -> None:
        """Forget it: the tuning has ended."""
        with suppress(FileNotFoundError):
            self._path.unlink()


def _course(name: str, course: _Course, tensors: Weights) -> Course:
    best, last = (
        {
            key.removeprefix(prefix): values
            for key, values in tensors.items()
            if key.startswith(prefix := f"{name}/{which}/")
        }
        for which in ("best", "last")
    )
    fields = {field: getattr(course, field) for field in _Course.model_fields}
    return Course(best_weights=best, weights=last, **fields)
