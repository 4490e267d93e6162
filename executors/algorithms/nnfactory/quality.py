"""How well tasks are done within each limit, on validation data."""

from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict

#: Limits at which quality is measured.
_MEASURED: Final = 12


class Quality(BaseModel):
    """Scores of trained tasks by limit.

    Attributes:
        tasks: The tasks, as text.
        limits: Largest shares of units that may be open, ascending.
        scores: Balanced accuracies [tasks, limits].
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tasks: tuple[str, ...]
    limits: tuple[float, ...]
    scores: tuple[tuple[float, ...], ...]

    def expected(self, limit: float) -> float:
        """Return the mean score of all tasks within a limit, interpolated between those measured."""
        means = np.mean(self.scores, axis=0)
        return float(np.interp(np.log(limit), np.log(self.limits), means))


#: The quality of a supernet before it is trained.
UNMEASURED: Final = Quality(tasks=(), limits=(), scores=())


def measured_limits(least: float) -> tuple[float, ...]:
    """Return the limits at which quality is measured, from the least to all units."""
    return tuple(float(limit) for limit in np.geomspace(least, 1.0, _MEASURED))
