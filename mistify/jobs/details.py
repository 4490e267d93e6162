"""The details of a goal, which lists of goals leave out: its layers, and the curve of its training."""

from dataclasses import dataclass

from mistify.jobs.job import ProgressUpdate


@dataclass(frozen=True)
class LayerFigures:
    """A layer in one network.

    Attributes:
        width: Output channels.
        params: Weights as trained, including a batch norm that is folded into the layer.
        multiply_adds: For one inference at batch 1.
        milliseconds: Predicted time of this layer alone.
    """

    width: int
    params: int
    multiply_adds: int
    milliseconds: float


@dataclass(frozen=True)
class LayerChange:
    """A layer of the tuned source, and its fate.

    Attributes:
        kind: Its class in Keras.
        groups: Channel groups of the output, by the layers they are named after; empty where all channels
            stay.
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
        hardware: The profile that predicts times: `host`, `my-board@4-threads@int8`.
    """

    hardware: str
    layers: tuple[LayerChange, ...]


@dataclass(frozen=True)
class GoalDetails:
    """The details of a goal.

    Attributes:
        layers: None until there is a package, and where the layers of the source cannot be told apart.
        curve: Progress of its adaptation and tuning, thinned out, without `costs`.
        sequence: Number of the job's last event that is part of the curve.
    """

    layers: LayerTable | None
    curve: tuple[ProgressUpdate, ...]
    sequence: int
