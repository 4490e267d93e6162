"""The progress of a tuning, in a file with atomic updates that survive a crash."""

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

from mistify.files.writing import write_bytes
from mistify_client.tuning.trainer import Weights
from mistify_client.tuning.training_loop import Score, TrainingState

_HEADER: Final = "progress"


class Stage(StrEnum):
    """The next step of a tuning; paper 5.1 numbers the steps from (i) to (iv)."""

    #: (i) Tune on the own data.
    LOCAL = "alone"
    #: Train the model to publish on noisy data.
    NOISY = "on noisy data"
    #: (ii) Publish, and download the models of peers.
    EXCHANGE = "exchange"
    #: (iii) Tune with the peers as the teacher.
    TAUGHT = "with peers"
    #: Make the best weights the current version of the package.
    INSTALL = "install"


@dataclass(frozen=True)
class TuningProgress:
    """The progress of a tuning.

    Attributes:
        stage: The next step.
        began: The score before any tuning.
        state: The state of the network's training; its best weights are the best of all so far.
        round: The number of the current round with peers, from 1; 0 before the first.
        before: The best score before that round.
        noisy: The state of the training on noisy data; None if there is none.
        teachers: The peers that teach in that round, by `PeerOutputs.key`.
    """

    stage: Stage
    began: Score
    state: TrainingState
    round: int = 0
    before: Score | None = None
    noisy: TrainingState | None = None
    teachers: tuple[str, ...] = ()

    def at(self, stage: Stage, **changes: object) -> "TuningProgress":
        """Return this progress at another stage, with other changes."""
        return replace(self, stage=stage, **changes)  # type: ignore[arg-type]


class _StateFigures(BaseModel):
    """All of a state except its weights."""

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
    states: dict[str, _StateFigures]
    teachers: tuple[str, ...]


class ProgressFile:
    """The file with the progress of a tuning.

    Args:
        fingerprint: Digest of the package, data and settings; the progress of any other tuning is ignored.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self._path = path
        self._fingerprint = fingerprint

    def load(self) -> TuningProgress | None:
        """Return the progress of this tuning; None if the file has none."""
        try:
            with safe_open(str(self._path), framework="numpy") as file:
                header = _Header.model_validate_json((file.metadata() or {}).get(_HEADER, ""))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        except (OSError, SafetensorError, ValidationError):
            return None
        if header.of != self._fingerprint:
            return None
        states = {name: _state(name, state, tensors) for name, state in header.states.items()}
        return TuningProgress(
            stage=header.stage,
            began=header.began,
            state=states["own"],
            round=header.round,
            before=header.before,
            noisy=states.get("noisy"),
            teachers=header.teachers,
        )

    def save(self, progress: TuningProgress) -> None:
        """Replace the progress in the file.

        Raises:
            OSError: The file cannot be written; the old one is kept.
        """
        states = {"own": progress.state, **({"noisy": progress.noisy} if progress.noisy else {})}
        tensors = {
            f"{key}/{which}/{name}": np.asarray(values, order="C")
            for key, state in states.items()
            for which, weights in (("best", state.best_weights), ("last", state.weights))
            for name, values in weights.items()
        }
        header = {
            "of": self._fingerprint,
            "stage": progress.stage,
            "began": progress.began,
            "round": progress.round,
            "before": progress.before,
            "states": {
                name: {field: getattr(state, field) for field in _StateFigures.model_fields}
                for name, state in states.items()
            },
            "teachers": progress.teachers,
        }
        write_bytes(self._path, save(tensors, {_HEADER: json.dumps(header)}), durable=True)

    def remove(self) -> None:
        """Remove the file after the end of the tuning."""
        with suppress(FileNotFoundError):
            self._path.unlink()


def _state(name: str, state: _StateFigures, tensors: Weights) -> TrainingState:
    best, last = (
        {
            key.removeprefix(prefix): values
            for key, values in tensors.items()
            if key.startswith(prefix := f"{name}/{which}/")
        }
        for which in ("best", "last")
    )
    fields = {field: getattr(state, field) for field in _StateFigures.model_fields}
    return TrainingState(best_weights=best, weights=last, **fields)
