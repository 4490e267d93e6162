"""Layout of a package's network: a row for each operator in execution order, and a lane for each tensor."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mistify.jobs.channels import Channels
from mistify.jobs.network_graph import GraphNode, NetworkGraph, error_growth, worst_nodes

#: Height of a row and distance of two lanes in units of the drawing, of which 16 are 1 rem.
ROW: Final = 28
_LANE: Final = 14

#: Maximum width of all lanes; many lanes are closer to each other.
_WIDEST: Final = 112


@dataclass(frozen=True)
class Place:
    """The place of a node among the lanes.

    Attributes:
        lane: The lane of the node and of its output.
        read: The lanes of its inputs.
        passing: Lanes that go on below the node, those of the inputs that others read as well included.
        goes_on: Whether another node reads the output.
    """

    lane: int
    read: tuple[int, ...]
    passing: tuple[int, ...]
    goes_on: bool


@dataclass(frozen=True)
class NetworkRow:
    """A node with its place in the drawing and its figures for bars.

    Attributes:
        number: Position of the node.
        x: Horizontal center of the node.
        path: Its lanes as an SVG path.
        reads: Positions of the nodes that it reads, if they are not just the previous one.
        channels: Channels of the layer here and in the source; None if the layer has none to be cut.
        work: Multiply-adds, in per cent of the largest number.
        error: Relative error, in per cent of the largest one.
        growth: By how much the error exceeds that of its inputs; None if unknown.
        is_worst: Whether it is one of the nodes in which the error grows most.
    """

    number: int
    node: GraphNode
    x: float
    path: str
    reads: tuple[int, ...]
    channels: Channels | None
    work: float
    error: float
    growth: float | None
    is_worst: bool


@dataclass(frozen=True)
class NetworkDrawing:
    """The rows of a network.

    Attributes:
        width: Width of all lanes.
        worst: The rows in which the error grows most, the worst first.
    """

    graph: NetworkGraph
    rows: Sequence[NetworkRow]
    width: float
    worst: Sequence[NetworkRow]


def draw_network(graph: NetworkGraph, channels: Mapping[int, Channels]) -> NetworkDrawing:
    """Return the drawing of a network.

    Args:
        graph: The operators of the network.
        channels: Position of a node -> its channels and those of the source.
    """
    places = place_nodes(graph.nodes)
    lanes = 1 + max((lane for place in places for lane in (place.lane, *place.passing)), default=0)
    distance = min(_LANE, _WIDEST / lanes)
    grown = error_growth(graph)
    worst = worst_nodes(graph)
    most_work = max((node.multiply_adds or 0 for node in graph.nodes), default=0)
    largest = max((node.error or 0.0 for node in graph.nodes), default=0.0)
    rows = [
        NetworkRow(
            number=position,
            node=node,
            x=_center(place.lane, distance),
            path=_path(place, distance),
            reads=() if node.inputs in ((), (position - 1,)) else node.inputs,
            channels=channels.get(position),
            work=_per_cent(node.multiply_adds or 0, most_work),
            error=_per_cent(node.error or 0.0, largest),
            growth=grown.get(position),
            is_worst=position in worst,
        )
        for position, (node, place) in enumerate(zip(graph.nodes, places, strict=True))
    ]
    return NetworkDrawing(graph, rows, lanes * distance, [rows[position] for position in worst])


def place_nodes(nodes: Sequence[GraphNode]) -> list[Place]:
    """Return the places of nodes: a tensor keeps its lane until the last node that reads it.

    A node takes the leftmost lane that ends at it, or else the leftmost free one.
    """
    last = {read: position for position, node in enumerate(nodes) for read in node.inputs}
    lanes: dict[int, int] = {}
    places = []
    for position, node in enumerate(nodes):
        read = tuple(lanes[each] for each in node.inputs)
        ended = [each for each in node.inputs if last[each] == position]
        freed = [lanes.pop(each) for each in ended]
        passing = tuple(lanes.values())
        lane = min(freed) if freed else _free(passing)
        goes_on = position in last
        if goes_on:
            lanes[position] = lane
        places.append(Place(lane, read, passing, goes_on))
    return places


def _free(taken: Iterable[int]) -> int:
    occupied = set(taken)
    return next(lane for lane in range(len(occupied) + 1) if lane not in occupied)


def _path(place: Place, distance: float) -> str:
    x = _center(place.lane, distance)
    half, quarter = ROW / 2, ROW / 4
    straight = [f"M{_center(lane, distance):g},0V{ROW}" for lane in place.passing]
    joined = [
        f"M{start:g},0C{start:g},{quarter:g} {x:g},{quarter:g} {x:g},{half:g}"
        for start in (_center(lane, distance) for lane in place.read)
    ]
    return "".join([*straight, *joined, f"M{x:g},{half:g}V{ROW}" if place.goes_on else ""])


def _center(lane: int, distance: float) -> float:
    return (lane + 0.5) * distance


def _per_cent(figure: float, most: float) -> float:
    return round(100 * figure / most, 1) if most else 0.0
