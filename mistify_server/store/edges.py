"""Edges of goal trees, by the figures that compare them."""

from typing import Final

from mistify.config.data.metric import Metric
from mistify_server.tasks.base import Message

#: How training steps of a narrow network compare with those of its source: part of a step does not shrink.
_FIXED_PART: Final = 0.35


class EdgeFeatures(Message):
    """Facts about an edge that are known before it is adapted.

    Attributes:
        subject: A digest of model and data.
        kind: The kind of network.
        halvings: Halvings of the multiply-adds from the source to the goal.
        distance: Halvings of the costs between parent and goal.
        share: The parent's multiply-adds over the source's.
        steps: Training steps.
        shared_steps: See `executors.contract.profile.AlgorithmProfile`.
    """

    subject: str
    kind: str
    algorithm: str
    halvings: float
    distance: float
    share: float
    steps: int
    shared_steps: int = 0

    @property
    def learned(self) -> int:
        """Return the training steps that its network has learned for, before and on the edge."""
        return self.shared_steps + self.steps

    @property
    def work(self) -> float:
        """Return the work of its training steps, in training steps of the source."""
        size: float = (self.share * self.share * 2.0**-self.halvings) ** (1 / 3)
        return self.steps * (_FIXED_PART + (1 - _FIXED_PART) * size)


class OutputRecord(Message):
    """The score of an output of the tuned source, and the share by which the network is worse."""

    output: str
    metric: Metric
    source: float
    lost: float


class EdgeRecord(Message):
    """An edge that was adapted.

    Attributes:
        case: The facts that were known before.
        source_steps: Number of steps that tuned the source.
        source: The tuned source's figure by the metric.
        lost: Share of `source` by which the goal's network is worse (`Metric.lost`).
        seconds: Time of the adaptation.
        outputs: Output -> the same by a metric of its own.
    """

    case: EdgeFeatures
    source_steps: int
    source: float
    lost: float
    seconds: float
    outputs: tuple[OutputRecord, ...] = ()

    def by_output(self, output: str, metric: Metric) -> "EdgeRecord | None":
        """Return the record by the score of one output in place of all; None where it is unknown."""
        for own in self.outputs:
            if (own.output, own.metric) == (output, metric):
                return self.model_copy(update={"source": own.source, "lost": own.lost})
        return None
