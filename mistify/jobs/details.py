"""The details of a goal, which lists of goals omit: its layers, its training curve and its operators."""

from dataclasses import dataclass

from mistify.jobs.job import ProgressUpdate
from mistify.jobs.network_graph import NetworkGraph


@dataclass(frozen=True)
class LayerFigures:
    """A layer in one network.

    Attributes:
        width: Output channels.
        params: Weights as trained, including a batch norm folded into the layer.
        multiply_adds: For one inference at batch 1.
        milliseconds: Predicted time of this layer on its own.
    """

    width: int
    params: int
    multiply_adds: int
    milliseconds: float


@dataclass(frozen=True)
class LayerChange:
    """A layer of the tuned source, before and after adaptation.

    Attributes:
        kind: Its class in Keras.
        groups: Channel groups of the output, by the layers they are named after; empty if all channels stay.
        before: The layer in the tuned source; None if only the goal's network has it.
        after: The layer in the goal's network; None if it was removed.
    """

    name: str
    kind: str
    groups: tuple[str, ...]
    before: LayerFigures | None
    after: LayerFigures | None


@dataclass(frozen=True)
class LayerTable:
    """The layers of a goal's network next to those of the tuned source, in execution order.

    Layers that do no work of their own in LiteRT, such as activations, are merged into the layers before
    them.

    Attributes:
        hardware: The profile that predicts times: `host`, `my-board@4-threads@int8`.
    """

    hardware: str
    layers: tuple[LayerChange, ...]


@dataclass(frozen=True)
class GoalDetails:
    """The details of a goal.

    Attributes:
        layers: None until there is a package, and if the layers of the source cannot be distinguished.
        curve: Progress of its adaptation and tuning, downsampled, without `costs`.
        sequence: Number of the job's last event that is part of the curve.
        graph: The operators of its network; None until there is a package, for packages of earlier versions,
            and for networks of too many operators.
    """

    layers: LayerTable | None
    curve: tuple[ProgressUpdate, ...]
    sequence: int
    graph: NetworkGraph | None = None
