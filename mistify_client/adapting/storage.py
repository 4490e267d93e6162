"""The files of adaptation in the state directory of a package: statistics, state and history."""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from mistify.adaptation.statistics import Statistics
from mistify.files.writing import write_bytes
from mistify.package.records import Record, Sha256
from mistify_client.runtime.versions import state_directory

__all__ = ["AdaptationState", "AdaptationStorage", "adaptation_directory"]

#: Maximum size of the history in bytes; beyond it, the oldest entries are removed.
_MOST_BYTES: Final = 200_000


def adaptation_directory(package: Path) -> Path:
    """Return the directory of a package's adaptation, created if necessary, and private to its owner.

    Args:
        package: The directory of the shipped package.
    """
    directory = state_directory(package) / "adaptation"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # statistics reveal something about the data
    return directory


class AdaptationState(Record):
    """The progress of adaptation.

    Attributes:
        network: SHA-256 of the network whose statistics these are.
        adapted: Whether the current version is adapted.
        shift: How far the statistics have moved; 1 is as far as a single class moves them.
        spread: The entropy of the mean of recent predictions, as a share of the largest.
        examples: Examples seen so far.
        updates: Updates of the statistics so far.
        time: The time of this state in UTC, such as "2026-01-31T12:00:00+00:00".
    """

    network: Sha256
    adapted: bool
    shift: float
    spread: float
    examples: int
    updates: int
    time: str


class AdaptationStorage:
    """The files of a package's adaptation; damaged ones count as missing.

    Args:
        package: The directory of the shipped package.
    """

    def __init__(self, package: Path) -> None:
        self._directory = state_directory(package) / "adaptation"
        self._state = self._directory / "state.json"
        self._statistics = self._directory / "statistics.safetensors"
        self._history = self._directory / "history.jsonl"

    @property
    def is_reset(self) -> bool:
        """True if there are no statistics, for example because another process has reset them."""
        return not self._statistics.exists()

    def state(self) -> AdaptationState | None:
        """Return the last state; None without one."""
        with suppress(OSError, ValidationError):
            return AdaptationState.model_validate_json(self._state.read_bytes())
        return None

    def statistics(self, channels: int) -> Statistics | None:
        """Return the last statistics; None without any, or if they have another number of channels."""
        with suppress(OSError, SafetensorError, KeyError):
            arrays = load(self._statistics.read_bytes())
            if all(arrays[name].shape == (channels,) for name in ("mean", "variance")):
                return Statistics(arrays["mean"], arrays["variance"])
        return None

    def save(self, state: AdaptationState, statistics: Statistics) -> None:
        """Write state and statistics, each atomically."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        arrays = {"mean": statistics.mean, "variance": statistics.variance}
        content = save({name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()})
        write_bytes(self._statistics, content)
        write_bytes(self._state, (state.model_dump_json() + "\n").encode())

    def note(self, event: str, reason: str, **figures: float) -> dict[str, Any]:
        """Add an entry to the history, and return it."""
        entry = {"time": now(), "event": event, "reason": reason, **figures}
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = [*map(json.dumps, self.history()), json.dumps(entry)]
        while len(lines) > 1 and sum(map(len, lines)) > _MOST_BYTES:
            del lines[0]
        write_bytes(self._history, ("\n".join(lines) + "\n").encode())
        return entry

    def history(self) -> list[dict[str, Any]]:
        """Return all entries, the oldest first."""
        return list(self._entries())

    def _entries(self) -> Iterator[dict[str, Any]]:
        with suppress(OSError, UnicodeDecodeError):
            for line in self._history.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, RecursionError):
                    entry = json.loads(line)
                    if isinstance(entry, dict):
                        yield entry

    def forget(self) -> None:
        """Remove state and statistics, but not the history."""
        for path in (self._statistics, self._state):
            path.unlink(missing_ok=True)


def now() -> str:
    """Return the time as text."""
    return datetime.now(UTC).isoformat(timespec="seconds")
