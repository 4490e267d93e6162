"""The guard of adaptation: when an adapted network is installed, and when the shipped one comes back."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mistify.adaptation.adapter import spread
from mistify.package.adaptation import INSTALL_AT, RESTORE_BELOW

__all__ = ["Action", "Shifts", "chosen_action", "has_collapsed", "may_install"]

Array = npt.NDArray[Any]

#: The shift since the installed version from which it is adapted again.
RENEW_AT: Final = 0.5

#: Statistics have settled once their recent shift is smaller than that of a renewal, or this share of the
#: whole shift.
_SETTLED_SHARE: Final = 1 / 3

#: Seconds between two installations, and those after which statistics that do not settle are installed.
LEAST_SECONDS: Final = 60.0
LONGEST_WAIT: Final = 30.0

#: Least spread of the adapted network's predictions, as a share of the shipped one's.
_LEAST_SHARE: Final = 0.5


class Action(StrEnum):
    """An action of the guard."""

    KEEP = "keep"
    INSTALL = "install"
    RESTORE = "restore"


@dataclass(frozen=True)
class Shifts:
    """How far the statistics have moved, as multiples of the moves without a shift of the data.

    Attributes:
        shipped: Since the shipped statistics.
        recent: During the last updates.
        installed: Since the installed version; None if the shipped one runs.
    """

    shipped: float
    recent: float
    installed: float | None = None

    @property
    def settled(self) -> bool:
        """True if the statistics hardly move any more."""
        return self.recent < max(RENEW_AT, _SETTLED_SHARE * self.shipped)

    @property
    def due(self) -> bool:
        """True if a version with these statistics differs enough from the current one."""
        new = self.installed is None or self.installed >= RENEW_AT
        return new and self.shipped >= INSTALL_AT


def may_install(shifts: Shifts, seconds: float) -> bool:
    """Return whether another version may be installed.

    Args:
        seconds: Seconds since the last installation.
    """
    return shifts.due and seconds >= LEAST_SECONDS


def chosen_action(shifts: Shifts, seconds: float, waited: float) -> Action:
    """Return the action for a shift of the data.

    Running statistics approach those of the data over many examples. An installation waits until they are
    most of the way there, because the next one cannot follow within a minute.

    Args:
        seconds: Seconds since the last installation.
        waited: Seconds since an installation became possible (`may_install`).
    """
    if shifts.installed is not None and shifts.shipped < RESTORE_BELOW:
        return Action.RESTORE
    ready = shifts.settled or waited >= LONGEST_WAIT
    return Action.INSTALL if ready and may_install(shifts, seconds) else Action.KEEP


def has_collapsed(adapted: Sequence[Array], shipped: Sequence[Array]) -> bool:
    """Return whether an adapted network predicts far fewer classes than the shipped one on the same examples.

    Args:
        adapted: Its predictions [classes] for each example.
        shipped: The shipped network's predictions for them.
    """
    if not all(np.isfinite(one).all() for one in adapted):
        return True
    return spread(adapted) < _LEAST_SHARE * spread(shipped)
