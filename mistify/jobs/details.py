"""The details of a goal, which lists of goals leave out: its layers, and the curve of its training."""

from dataclasses import dataclass

from mistify.jobs.job import ProgressUpdate


@dataclass(frozen=True)
class LayerFigures:
    """A layer as it is in one network.

    Attributes:
        width: Channels of its output.
        params: Weights as trained, those of a batch norm that is folded into it included.
        multiply_adds: Of one inference at batch 1.
        milliseconds: The predicted time of the layer by itself.
    """

    width: int
    params: int
    multiply_adds: int
    milliseconds: float


@dataclass(frozen=True)
class LayerChange:
    """A layer of the tuned source, and what became of it.

    Attributes:
        name: The layer's name.
        kind: Its class in Keras.
        groups: The channel groups of its output, by the layers that they are named after; empty where all
            channels stay.
        before: The layer in the tuned source; None where only the goal's network has it.
        after: The layer in the goal's network; None where it was left out.
    """

    name: str
    kind: str
    groups: tuple[str, ...]
    before: LayerFigures | None
    after: LayerFigures | None


@dataclass(frozen=True)
class LayerTable:
    """The layers of a goal's network beside those of the tuned source, in the order in which they run.

    Layers without work of their own in LiteRT, such as activations, are in the layers before them.

    Attributes:
        hardware: The profile by which times are predicted: `host`, `my-board@4-threads@int8`.
        layers: The layers.
    """

    hardware: str
    layers: tuple[LayerChange, ...]


@dataclass(frozen=True)
class GoalDetails:
    """The details of a goal.

    Attributes:
        layers: None until there is a package, and where the source has no layers that can be told apart.
        curve: The progress of its adaptation and tuning, thinned out, without `costs`.
        sequence: The number of the job's last event that the curve has.
    """

    layers: LayerTable | None
    curve: tuple[ProgressUpdate, ...]
    sequence: int
