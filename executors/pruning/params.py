"""Settings of algorithms that cut several times, defined without TensorFlow."""

from math import ceil, log
from typing import Final

from pydantic import Field

from executors.contract.params import Params

#: The minimum share of the costs per cut; smaller cuts hardly affect a network.
LEAST_CUT: Final = 0.2


class IterativePruningParams(Params):
    """Settings of an algorithm that cuts several times.

    Attributes:
        cuts: Maximum number of iterations in an edge, each with a cut. A short edge takes fewer, and so fewer
            of the `adapt_steps`.
    """

    cuts: int = Field(default=8, ge=1)

    @property
    def steps_of_cut(self) -> int:
        """Training steps before each cut; 0 if nothing is trained until the budget is met."""
        return max(1, self.adapt_steps // self.cuts) if self.adapt_steps else 0

    def planned_cuts(self, distance: float) -> int:
        """Return the number of cuts on an edge: as few as possible if each takes at least the minimum share.

        Without training between cuts it is one; it never exceeds the number of training steps.

        Args:
            distance: Costs at the start over costs at the end, above 1.
        """
        if not self.adapt_steps:
            return 1
        return min(self.cuts, self.adapt_steps, max(1, ceil(log(distance) / -log(1 - LEAST_CUT))))

    def adapting_steps(self, distance: float) -> int:
        """Return the training steps before all cuts of an edge of this distance."""
        return self.planned_cuts(distance) * self.steps_of_cut
