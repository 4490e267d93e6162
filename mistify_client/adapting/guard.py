"""The guard of adaptation: when a network is adapted, and when the shipped one comes back."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mistify.adaptation.adapter import spread

__all__ = ["Action", "chosen_action", "has_collapsed"]

Array = npt.NDArray[Any]

#: The shift from which a network is adapted, and that below which the shipped one is restored: 1 is as far as
#: a single class moves the statistics.
INSTALL_AT: Final = 1.5
RESTORE_BELOW: Final = 1.0

#: The shift since the installed version from which it is adapted again.
RENEW_AT: Final = 0.5

#: Seconds between two installations.
LEAST_SECONDS: Final = 60.0

#: Least spread of the adapted network's predictions, as a share of the shipped one's.
_LEAST_SHARE: Final = 0.5


class Action(StrEnum):
    """An action of the guard."""

    KEEP = "keep"
    INSTALL = "install"
    RESTORE = "restore"


def chosen_action(shift: float, since_installed: float | None, seconds: float) -> Action:
    """Return the action for a shift of the data.

    Args:
        shift: The shift of the statistics from the shipped ones.
        since_installed: Their shift since the installed version; None if the shipped one runs.
        seconds: Seconds since the last installation.
    """
    if since_installed is not None and shift < RESTORE_BELOW:
        return Action.RESTORE
    due = since_installed is None or since_installed >= RENEW_AT
    return Action.INSTALL if shift >= INSTALL_AT and due and seconds >= LEAST_SECONDS else Action.KEEP


def has_collapsed(adapted: Sequence[Array], shipped: Sequence[Array]) -> bool:
    """Return whether an adapted network predicts far fewer classes than the shipped one on the same examples.

    Args:
        adapted: Its predictions [classes] for each example.
        shipped: The shipped network's predictions for them.
    """
    if not all(np.isfinite(one).all() for one in adapted):
        return True
    return spread(adapted) < _LEAST_SHARE * spread(shipped)
