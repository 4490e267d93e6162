"""Estimates of edges before anything is adapted: features of the model, profiles of the algorithms."""

from executors.contract.profile import AlgorithmProfile
from mistify.config.data.metric import OutputScore
from mistify_server.tasks.base import Message


class NetworkFeatures(Message):
    """Features by which models are compared.

    Attributes:
        model: A digest of its layers and weights.
        kind: Networks of one kind are expected to lose as much: `convolutional`, `transformer`, ...
        blocks: Residual blocks that can be left out.
    """

    model: str
    kind: str
    blocks: int


class EdgeEstimates(Message):
    """Estimates of an inspection for future edges.

    Attributes:
        source_steps: Number of steps that tune the source.
        profiles: Algorithm -> its profile, for those from which one is chosen for each edge.
        scaled: Costs with all channel groups scaled by one factor, the least first.
        accuracy: Accuracy of the source before tuning, on a sample of the validation data; None if it was not
            measured, or the sample does not tell.
        output_scores: Output -> score of the source before tuning, on the same sample, where it is known.
        step_seconds: Seconds of a training step of the source; None if it was not measured.
        generating: Training steps of the source that take as long as generating its data.
    """

    features: NetworkFeatures
    source_steps: int
    profiles: dict[str, AlgorithmProfile]
    scaled: tuple[dict[str, float], ...]
    accuracy: float | None = None
    output_scores: tuple[OutputScore, ...] = ()
    step_seconds: float | None = None
    generating: float = 0.0


class SourceTrial(Message):
    """A trial of tuning a source, on the data there are; it narrows the forecast, and plans do not keep it.

    Attributes:
        tested: Number of test examples; None where they are still to be generated.
        sampled: Number of validation examples on which the source was measured.
        steps: Number of steps of a trial, the beginning of tuning the source; 0 where there was none.
        accuracy: Accuracy of the trial's network on these examples.
        scores: Output -> score of the trial's network on these examples, where it is known.
        flips: Whether training flips images: the config leaves it open, and the source does not mind.
    """

    tested: int | None = None
    sampled: int | None = None
    steps: int = 0
    accuracy: float | None = None
    scores: tuple[OutputScore, ...] = ()
    flips: bool = False
