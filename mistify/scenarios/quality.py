"""How well the tasks of a network are done within each limit on its open units (NN-Factory 5.2)."""

from typing import Annotated, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

#: Limits that are tried for a request.
_TRIED: Final = 24

Limit = Annotated[float, Field(gt=0, le=1)]
Score = Annotated[float, Field(ge=0, le=1)]


class Quality(BaseModel):
    """Scores of trained tasks by limit.

    Attributes:
        tasks: The tasks, as text.
        limits: Largest shares of units that may be open, ascending.
        scores: Balanced accuracies [tasks, limits].
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tasks: tuple[str, ...]
    limits: Annotated[tuple[Limit, ...], Field(min_length=1)]
    scores: Annotated[tuple[tuple[Score, ...], ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_score_each(self) -> "Quality":
        if len(self.scores) != len(self.tasks) or {len(own) for own in self.scores} != {len(self.limits)}:
            raise ValueError(f"expected {len(self.tasks)} rows of {len(self.limits)} scores")
        if list(self.limits) != sorted(self.limits):
            raise ValueError("the limits are not ascending")
        return self

    def expected(self, limit: float) -> float:
        """Return the mean score of all tasks within a limit, interpolated between those measured."""
        means = np.mean(self.scores, axis=0)
        return float(np.interp(np.log(limit), np.log(self.limits), means))

    def tried(self) -> tuple[float, ...]:
        """Return the limits that are tried for a request: from the least that was measured to the largest."""
        return tuple(float(limit) for limit in np.geomspace(self.limits[0], self.limits[-1], _TRIED))
