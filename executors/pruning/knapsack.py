"""The multiple-choice knapsack problem: one choice for each item, by dynamic programming."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

#: Approximate number of sums of costs that are told apart, over all kinds of costs.
_CELLS: Final = 4_096

#: Sums may exceed the room by this share of it, because they are rounded.
_ROUNDING: Final = 1e-9


def cheapest_choices(losses: Sequence[Array], costs: Sequence[Array], room: Array) -> list[int] | None:
    """Return the index of each item's choice: the least total loss with costs within the room.

    The room is divided into cells, and the choices with the least loss are kept for each cell: the result is
    the best if no two sums of costs share a cell, and otherwise nearly the best.

    Args:
        losses: For each item the loss of each choice [choices].
        costs: For each item the costs of each choice [choices, kinds]; may be negative.
        room: The most that all choices together may cost [kinds].

    Returns:
        None if no choices are within the room.
    """
    least = [own.min(axis=0) for own in costs]
    room = room - np.sum(least, axis=0)
    if (room < 0).any():
        return None
    lost, spent = np.zeros(1), np.zeros((1, len(room)))
    origins: list[tuple[Ids, Ids]] = []
    for own, cost, low in zip(losses, costs, least, strict=True):
        after = (lost[:, None] + own).ravel()
        sums = (spent[:, None] + (cost - low)).reshape(len(after), -1)
        kept = _best_of_cells(after, sums, room)
        if not len(kept):
            return None
        lost, spent = after[kept], sums[kept]
        before, choice = np.divmod(kept, len(own))
        origins.append((before, choice))
    place = int(lost.argmin())
    picks: list[int] = []
    for before, choice in reversed(origins):
        picks.append(int(choice[place]))
        place = int(before[place])
    return picks[::-1]


def _best_of_cells(losses: Array, costs: Array, room: Array) -> Ids:
    """Return the indices of the sums within the room that have the least loss in their cells."""
    within = np.flatnonzero((costs <= room * (1 + _ROUNDING)).all(axis=1))
    count = round(_CELLS ** (1 / len(room)))
    shares = costs[within] / np.where(room > 0, room, 1.0)
    cells = np.minimum((count * shares).astype(np.int64), count) @ (count + 1) ** np.arange(len(room))
    order = np.lexsort((losses[within], cells))
    first = np.diff(cells[order], prepend=-1) > 0
    kept: Ids = within[order[first]]
    if len(room) > 1:
        return kept
    # In ascending order of costs, more costs have to lose less.
    better = np.diff(np.minimum.accumulate(losses[kept]), prepend=np.inf) < 0
    return kept[better]
