"""Settings of algorithms that reach a goal by several cuts; they need no TensorFlow."""

from math import ceil, log
from typing import Final

from pydantic import Field

from executors.contract.params import Params

#: A cut takes at least this share of the costs; a network is hardly hurt by less.
LEAST_CUT: Final = 0.2


class IterativePruningParams(Params):
    """Settings of an algorithm that cuts several times.

    Attributes:
        cuts: Highest number of iterations in an edge, each with a cut. A short edge takes fewer, and so fewer
            of the `adapt_steps`.
    """

    cuts: int = Field(default=8, ge=1)

    @property
    def steps_of_cut(self) -> int:
        """Training steps before each cut; 0 where nothing is trained until the budget is met."""
        return max(1, self.adapt_steps // self.cuts) if self.adapt_steps else 0

    def planned_cuts(self, distance: float) -> int:
        """Return the cuts of an edge along which costs fall by a factor: as few as take the least share each.

        Without training in between it is one; it is never more than the training steps.

        Args:
            distance: Costs at the start over costs at the end, above 1.
        """
        if not self.adapt_steps:
            return 1
        return min(self.cuts, self.adapt_steps, max(1, ceil(log(distance) / -log(1 - LEAST_CUT))))

    def adapting_steps(self, distance: float) -> int:
        """Return the training steps before all cuts of such an edge."""
        return self.planned_cuts(distance) * self.steps_of_cut
