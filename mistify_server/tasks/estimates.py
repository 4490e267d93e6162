"""Estimates of edges before any adaptation: features of the model, profiles of the algorithms."""

from typing import Self

from executors.contract.profile import AlgorithmProfile
from mistify.config.data.metric import OutputScore
from mistify.jobs.pace import paced_steps
from mistify_server.tasks.base import Message


class NetworkFeatures(Message):
    """Features for comparing models.

    Attributes:
        model: A digest of the layers and weights.
        kind: Kind of network, such as `convolutional` or `transformer`; networks of one kind have similar
            losses.
        blocks: Number of removable residual blocks.
    """

    model: str
    kind: str
    blocks: int


class EdgeEstimates(Message):
    """Estimates from an inspection for future edges.

    Attributes:
        source_steps: Number of steps for tuning the source.
        profiles: Algorithm -> its profile, for the algorithms that edges may use.
        scaled: Costs with all channel groups scaled by one factor, smallest first.
        accuracy: Accuracy of the source before tuning, on a sample of the validation data; None if it was not
            measured or the sample is inconclusive.
        output_scores: Output -> score of the source before tuning, on the same sample, where known.
        nats: Mean loss of an answer of the source on that sample, after the trial of tuning if there was one;
            None if it was not measured or an output has figures.
        step_seconds: Seconds per training step of the source; None if it was not measured.
        generating: Time to generate its data, in training steps of the source.
    """

    features: NetworkFeatures
    source_steps: int
    profiles: dict[str, AlgorithmProfile]
    scaled: tuple[dict[str, float], ...]
    accuracy: float | None = None
    output_scores: tuple[OutputScore, ...] = ()
    nats: float | None = None
    step_seconds: float | None = None
    generating: float = 0.0

    def paced(self, pace: float, source_pace: float) -> Self:
        """Return the estimates with all numbers of training steps multiplied by a factor.

        Args:
            pace: The factor of steps other than those that tune the source.
            source_pace: The factor of the steps that tune the source.
        """
        profiles = {name: profile.paced(pace) for name, profile in self.profiles.items()}
        steps = paced_steps(self.source_steps, source_pace)
        return self.model_copy(update={"source_steps": steps, "profiles": profiles})


class SourceTrial(Message):
    """A short trial of tuning a source. It narrows the forecast, and is not kept in plans.

    Attributes:
        tested: Number of test examples; None if they have not been generated yet.
        sampled: Number of validation examples on which the source was evaluated.
        steps: Number of training steps in the trial; 0 without a trial.
        accuracy: Accuracy of the trial's network on these examples.
        scores: Output -> score of the trial's network on these examples, where known.
        flips: Whether training flips images: true if the config leaves it open and flips do not hurt the
            source.
    """

    tested: int | None = None
    sampled: int | None = None
    steps: int = 0
    accuracy: float | None = None
    scores: tuple[OutputScore, ...] = ()
    flips: bool = False
