"""Features and records of edges in goal trees."""

from collections.abc import Sequence
from typing import Final, Protocol

from mistify.config.data.metric import Metric
from mistify_server.tasks.base import Message

#: The fixed part of a training step's duration, which does not shrink with the width of the network.
_FIXED_PART: Final = 0.35


class EdgeFeatures(Message):
    """Facts about an edge that are known before its adaptation.

    Attributes:
        subject: A digest of model and data.
        kind: The kind of network.
        halvings: Halvings of the multiply-adds from the source to the goal.
        distance: Halvings of the costs from parent to goal.
        share: The parent's multiply-adds divided by the source's.
        steps: Number of training steps.
        spared: Number of further steps of tuning that would gain nothing; it loses no more than after them.
        shared_steps: See `executors.contract.profile.AlgorithmProfile`.
    """

    subject: str
    kind: str
    algorithm: str
    halvings: float
    distance: float
    share: float
    steps: int
    spared: int = 0
    shared_steps: int = 0

    @property
    def learned(self) -> int:
        """Return the total training steps of the network, before and on the edge, spared ones included."""
        return self.shared_steps + self.steps + self.spared

    @property
    def work(self) -> float:
        """Return the duration of its training steps, in training steps of the source."""
        size: float = (self.share * self.share * 2.0**-self.halvings) ** (1 / 3)
        return self.steps * (_FIXED_PART + (1 - _FIXED_PART) * size)


class OutputRecord(Message):
    """The score of an output of the tuned source, and the network's relative loss."""

    output: str
    metric: Metric
    source: float
    lost: float


class EdgeRecord(Message):
    """An adapted edge.

    Attributes:
        case: The facts that were known before.
        source_steps: Number of training steps of the tuned source.
        source: The tuned source's figure by the metric.
        lost: Loss of the goal's network relative to `source` (`Metric.lost`).
        seconds: Duration of the adaptation.
        outputs: Output -> the same by that output's metric.
    """

    case: EdgeFeatures
    source_steps: int
    source: float
    lost: float
    seconds: float
    outputs: tuple[OutputRecord, ...] = ()

    def by_output(self, output: str, metric: Metric) -> "EdgeRecord | None":
        """Return the record with the score of one output instead of the overall score; None if unknown."""
        for own in self.outputs:
            if (own.output, own.metric) == (output, metric):
                return self.model_copy(update={"source": own.source, "lost": own.lost})
        return None


class EdgeHistory(Protocol):
    """The edges of earlier jobs, from which forecasts learn."""

    def edges(self, subject: str, kind: str, limit: int) -> Sequence[EdgeRecord]:
        """Return up to `limit` of the latest edges, as `JobStore.edges` does."""
