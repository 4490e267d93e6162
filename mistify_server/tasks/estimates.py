"""Estimates of edges before anything is adapted: traits of the model, costs of the algorithms."""

from collections.abc import Sequence
from math import ceil

from mistify.config.data.metric import OutputScore
from mistify_server.tasks.base import Message

#: Entries of `Candidate.adapting` for each halving of the costs.
PER_HALVING = 4


class Traits(Message):
    """Traits by which models are compared.

    Attributes:
        model: A digest of its layers and weights.
        kind: Networks of one kind are expected to lose as much: `convolutional`, `transformer`, ...
        blocks: Residual blocks that can be left out.
    """

    model: str
    kind: str
    blocks: int


class Candidate(Message):
    """An algorithm that can be chosen for an edge, with its settings.

    Attributes:
        gain: See `executors.contract.executor.Aptitude`.
        gain_at_latency: See `executors.contract.executor.Aptitude`.
        edge: See `executors.contract.executor.Aptitude`.
        preparing_step: See `executors.contract.executor.Aptitude`.
        least_path: See `executors.contract.executor.Aptitude`.
        preparing: Steps of preparing, by the distance from the source to the least limits: `PER_HALVING` for
            each halving. Empty where there is nothing to prepare.
        shared_steps: See `executors.contract.executor.AdaptationExecutor.shared_steps`.
        adapting: Training steps until a budget is met, by the distance to it: `PER_HALVING` for each halving.
        tune_steps: Steps that tune a network which meets its budget, repeated while accuracy falls short.
        max_steps: The most steps of one goal.
    """

    gain: float
    gain_at_latency: float = 0.0
    edge: int
    preparing_step: float = 1.0
    least_path: int = 1
    preparing: tuple[int, ...] = ()
    shared_steps: int = 0
    adapting: tuple[int, ...]
    tune_steps: int
    max_steps: int

    @property
    def prepares(self) -> bool:
        """Return whether it prepares anything."""
        return bool(self.preparing)

    def preparing_steps(self, distance: float) -> int:
        """Return the steps of preparing.

        Args:
            distance: Halvings of the costs between the source and the least limits.
        """
        return self.preparing[_place(distance, self.preparing)] if self.preparing else 0

    def steps(self, distance: float, rounds: int = 1) -> int:
        """Return the training steps of an edge.

        Args:
            distance: Halvings of the costs between parent and goal.
            rounds: Number of times that the network is tuned.
        """
        adapting = self.adapting[_place(distance, self.adapting)]
        return min(adapting + rounds * self.tune_steps, self.max_steps)

    def rounds(self, distance: float) -> int:
        """Return the most rounds of tuning that `steps` allows at a distance."""
        left = self.max_steps - self.steps(distance, 0)
        return max(1, -(-left // self.tune_steps)) if self.tune_steps else 1


def _place(distance: float, figures: Sequence[int]) -> int:
    """Return the place of a distance, in halvings, in figures by distance."""
    return min(ceil(PER_HALVING * max(distance, 0.0)), len(figures) - 1)


class EdgeEstimates(Message):
    """Estimates of an inspection for future edges.

    Attributes:
        source_steps: Number of steps that tune the source.
        candidates: The algorithms from which one is chosen for each edge, by name.
        scaled: Costs with all channel groups scaled by one factor, the least first.
        accuracy: Accuracy of the source before tuning, on a sample of the validation data; None if it was not
            measured, or the sample does not tell.
        output_scores: Output -> score of the source before tuning, on the same sample, where it is known.
        step_seconds: Seconds of a training step of the source; None if it was not measured.
        generating: Training steps of the source that take as long as generating its data.
    """

    traits: Traits
    source_steps: int
    candidates: dict[str, Candidate]
    scaled: tuple[dict[str, float], ...]
    accuracy: float | None = None
    output_scores: tuple[OutputScore, ...] = ()
    step_seconds: float | None = None
    generating: float = 0.0


class Outlook(Message):
    """Facts that narrow the forecast of a source, as measured now; plans do not keep them.

    Attributes:
        tested: Number of test examples; None where they are still to be generated.
        sampled: Number of validation examples on which the source was measured.
        trial_steps: Number of steps of a trial, the beginning of tuning the source; 0 where there was none.
        trial_accuracy: Accuracy of the trial's network on these examples.
        trial_scores: Output -> score of the trial's network on these examples, where it is known.
        flips: Whether training flips images: the config leaves it open, and the source does not mind.
    """

    tested: int | None = None
    sampled: int | None = None
    trial_steps: int = 0
    trial_accuracy: float | None = None
    trial_scores: tuple[OutputScore, ...] = ()
    flips: bool = False
