"""Figures of a package's operators as node data for Model Explorer, which shows them on its own graph.

Model Explorer (google-ai-edge/model-explorer) opens the `.tflite` itself, and takes the data of each of its
graphs from a JSON file: a value for each node, by the number of the operator in the file, and the colors of
the smallest and the largest value.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from pydantic import BaseModel

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.channels import kept_channels
from mistify.jobs.details import GoalDetails
from mistify.jobs.network_graph import GraphNode


class NodeFigure(StrEnum):
    """A figure of each operator; errors and kept channels are in per cent."""

    ERROR = "error"
    MULTIPLY_ADDS = "multiply-adds"
    MILLISECONDS = "milliseconds"
    WEIGHT_BYTES = "weight-bytes"
    OUTPUT_BYTES = "output-bytes"
    CHANNELS = "channels"


class NodeValue(BaseModel):
    """The value of a node."""

    value: float


class GradientStop(BaseModel):
    """The background color of a node between the smallest value (0) and the largest (1)."""

    stop: float
    bgColor: str  # noqa: N815 (a field of Model Explorer)


class GraphData(BaseModel):
    """The values of the nodes of a graph."""

    results: dict[str, NodeValue]
    gradient: tuple[GradientStop, ...]


_GRADIENT: Final = (GradientStop(stop=0, bgColor="#ffffff"), GradientStop(stop=1, bgColor="#f4a259"))

_FIGURES: Final[Mapping[NodeFigure, Callable[[GraphNode], float | None]]] = {
    NodeFigure.ERROR: lambda node: None if node.error is None else 100 * node.error,
    NodeFigure.MULTIPLY_ADDS: lambda node: node.multiply_adds,
    NodeFigure.MILLISECONDS: lambda node: node.milliseconds,
    NodeFigure.WEIGHT_BYTES: lambda node: node.weight_bytes,
    NodeFigure.OUTPUT_BYTES: lambda node: node.output_bytes,
}


def figures_of(details: GoalDetails) -> list[NodeFigure]:
    """Return the figures that are known for some operators of a goal's network."""
    return [figure for figure in NodeFigure if _values(details, figure)]


def node_data(goal_id: str, details: GoalDetails, figure: NodeFigure) -> dict[str, GraphData]:
    """Return the values of a figure for the operators of a goal's network, by the name of the graph.

    Raises:
        MistifyError: NOT_FOUND, the figure is not known.
    """
    values = _values(details, figure)
    if details.graph is None or not values:
        known = ", ".join(figures_of(details)) or "no figures of operators"
        message = f'the goal "{goal_id}" has no {figure} of its operators; it has {known}'
        raise MistifyError(ErrorCode.NOT_FOUND, message)
    results = {str(index): NodeValue(value=value) for index, value in values.items()}
    return {details.graph.name: GraphData(results=results, gradient=_GRADIENT)}


def _values(details: GoalDetails, figure: NodeFigure) -> dict[int, float]:
    """Return the known values of a figure, by the number of the operator."""
    if details.graph is None:
        return {}
    if figure is NodeFigure.CHANNELS:
        values = {at: 100 * kept / before for at, (kept, before) in kept_channels(details).items() if before}
    else:
        figures = map(_FIGURES[figure], details.graph.nodes)
        values = {at: value for at, value in enumerate(figures) if value is not None}
    indices = {at: node.index for at, node in enumerate(details.graph.nodes)}
    return {index: value for at, value in values.items() if (index := indices[at]) is not None}
