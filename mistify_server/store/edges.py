"""An edge in the figures by which edges are compared."""

from typing import Final

from mistify_server.tasks.base import Message

#: How training steps of a narrow network compare with those of its source: part of a step does not shrink.
_FIXED_PART: Final = 0.35


class Case(Message):
    """An edge, as far as it is known before it is adapted.

    Attributes:
        subject: A digest of model and data.
        kind: Of network.
        algorithm: Which adapts it.
        halvings: Of the multiply-adds, from the source to the goal.
        distance: Halvings of the costs between parent and goal.
        share: The parent's multiply-adds over the source's.
        steps: Of training.
    """

    subject: str
    kind: str
    algorithm: str
    halvings: float
    distance: float
    share: float
    steps: int

    @property
    def work(self) -> float:
        """What its training steps come to in steps of the source."""
        size: float = (self.share * self.share * 2.0**-self.halvings) ** (1 / 3)
        return self.steps * (_FIXED_PART + (1 - _FIXED_PART) * size)


class EdgeRecord(Message):
    """An edge that was adapted.

    Attributes:
        case: What it was.
        source_steps: Steps that tuned the source.
        source: What the tuned source reaches.
        lost: Share of that by which the goal's network is worse (`Metric.lost`).
        seconds: What it took.
    """

    case: Case
    source_steps: int
    source: float
    lost: float
    seconds: float
