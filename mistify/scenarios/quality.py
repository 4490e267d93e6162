"""Accuracy of a network's tasks by the limit on its open units (NN-Factory 5.2)."""

from functools import cached_property
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

#: Numbers of limits at which quality is measured, and of limits evaluated for a request.
_MEASURED: Final = 12
_TRIED: Final = 24

#: Limits that are shown to people, and that a monitor switches between.
_LISTED: Final = (0.05, 0.1, 0.25, 0.5, 1.0)

Share = Annotated[float, Field(ge=0, le=1)]


class Quality(BaseModel):
    """Scores of trained tasks by limit.

    Attributes:
        tasks: The tasks, as text.
        limits: Largest shares of units that may be open, ascending; none before the network is trained.
        scores: Balanced accuracies [tasks, limits].
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tasks: tuple[str, ...]
    limits: tuple[Annotated[Share, Field(gt=0)], ...]
    scores: tuple[tuple[Share, ...], ...]

    @model_validator(mode="after")
    def _one_score_each(self) -> "Quality":
        if {len(own) for own in self.scores} - {len(self.limits)} or len(self.scores) != len(self.tasks):
            raise ValueError(f"expected {len(self.tasks)} rows of {len(self.limits)} scores")
        if list(self.limits) != sorted(self.limits):
            raise ValueError("the limits are not ascending")
        return self

    def expected(self, limit: float) -> float:
        """Return the mean score of all tasks within a limit, interpolated between measured limits."""
        return float(np.interp(np.log(limit), np.log(self.limits), self._means))

    @cached_property
    def _means(self) -> npt.NDArray[np.float64]:
        """The mean score of all tasks within each limit."""
        means: npt.NDArray[np.float64] = np.mean(self.scores, axis=0)
        return means

    def score(self, task: str, limit: float) -> float | None:
        """Return the score of a task within a limit, interpolated; None if it was not measured."""
        if task not in self.tasks:
            return None
        own = self.scores[self.tasks.index(task)]
        return float(np.interp(np.log(limit), np.log(self.limits), own))

    def tried_limits(self) -> tuple[float, ...]:
        """Return the limits evaluated for a request, from the lowest measured limit to all units."""
        return _up_from(self.limits[0], _TRIED)

    def listed_limits(self) -> tuple[float, ...]:
        """Return a few limits for people and for a monitor: round numbers, or the lowest measured limit."""
        least = max(self.limits[0], _LISTED[0])
        return (least, *(limit for limit in _LISTED if limit > least))


#: The quality of a network before it is trained.
UNMEASURED: Final = Quality(tasks=(), limits=(), scores=())


def measured_limits(least: float) -> tuple[float, ...]:
    """Return the limits at which quality is measured, from the lowest to all units."""
    return _up_from(least, _MEASURED)


def _up_from(least: float, count: int) -> tuple[float, ...]:
    return tuple(float(limit) for limit in np.geomspace(least, 1.0, count))
