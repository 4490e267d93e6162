"""The slices that a device may cut for a task, one for each limit (NN-Factory 3.5)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

from mistify.package.cut_places import CutPlaces
from mistify.package.factory import LIMIT_INPUT, LOGITS, SCALES, SHIFTS, TASK_INPUT, AskedTask, FactoryStore
from mistify.scenarios.gates import open_units
from mistify.tflite.session import Session
from mistify.tflite.slicing import OpenUnits, sliced

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class SliceCandidate:
    """A slice that can be cut.

    Attributes:
        limit: The largest share of open units that the assembler was asked for.
        quality: The expected score, or the one on the device's data.
        units: The open units of each group.
        classes: The classes that stay, where a task is some of them; otherwise nothing.
    """

    limit: float
    quality: float
    units: tuple[OpenUnits, ...]
    classes: tuple[OpenUnits, ...] = ()

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of open units of each group."""
        return tuple(group.kept.size for group in self.units)

    def cut(self, network: bytes | mmap, places: CutPlaces) -> bytes:
        """Return the slice of a network, as the content of a `.tflite`."""
        return sliced(network, places, (*self.units, *self.classes))


def candidates(
    store: FactoryStore, assembler: bytes, task: AskedTask, limits: Sequence[float]
) -> list[SliceCandidate]:
    """Return the slices for a task within each limit; of equal ones the first.

    Args:
        assembler: Content of the assembler's `.tflite`.
        limits: Shares of units, ascending.

    Raises:
        ValueError: The assembler is no network, or one for other tasks or units.
    """
    outputs = _assembled(assembler, task.encoded, limits, sum(group.units for group in store.groups))
    rows = (OpenUnits(np.array(task.classes)),) if task.classes else ()
    distinct: dict[bytes, SliceCandidate] = {}
    for row, limit in enumerate(limits):
        units = tuple(_open(store, limit, {name: values[row] for name, values in outputs.items()}))
        chosen = np.concatenate([np.append(group.kept, -1) for group in units])
        candidate = SliceCandidate(limit, store.quality.expected(limit), units, rows)
        distinct.setdefault(chosen.tobytes(), candidate)
    return list(distinct.values())


def _assembled(
    assembler: bytes, task: Floats, limits: Sequence[float], units: int
) -> Mapping[str, npt.NDArray[Any]]:
    """Return the outputs of the assembler [limits, units] by name, computed at once."""
    requests = {
        TASK_INPUT: np.tile(task, (len(limits), 1)),
        LIMIT_INPUT: np.array(limits, np.float32)[:, None],
    }
    outputs = Session(assembler, threads=1)(requests)
    if LOGITS not in outputs or {array.shape for array in outputs.values()} != {(len(limits), units)}:
        raise ValueError(f"the assembler does not answer for {units} units")
    return outputs


def _open(store: FactoryStore, limit: float, outputs: Mapping[str, Floats]) -> Iterator[OpenUnits]:
    """Yield the open units of each group, with their scales and shifts if the assembler has any."""
    counts, least = [group.units for group in store.groups], [group.least for group in store.groups]
    starts = np.cumsum([0, *counts[:-1]])
    for start, is_open in zip(starts, open_units(outputs[LOGITS], limit, counts, least), strict=True):
        kept = np.flatnonzero(is_open)
        scale, shift = (outputs[name][start + kept] if name in outputs else None for name in (SCALES, SHIFTS))
        yield OpenUnits(kept, scale, shift)
