"""Layout of a job's goal tree: a column for each depth, a row for each leaf (paper 4.2)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Final, TypeAlias

from mistify.jobs.job import Goal

#: Dimensions of the drawing in pixels: the gap between two columns, the distance of two rows, and a node.
GAP: Final = 40
ROW: Final = 40
NARROWEST: Final = 170
HEIGHT: Final = 28

#: Maximum number of characters of an id in a node.
LONGEST: Final = 40

#: Upper estimates of the widths of characters at the size of the labels, and of a figure with the margins.
_WIDTHS: Final = {**dict.fromkeys("fijlrtI.,:;|'-/()[]", 6), **dict.fromkeys("mwMW@%", 13)}
_CAPITAL, _OTHER, _FIGURE = 10, 8.5, 80

#: The id of a goal, or, for the source of a batch, the batch's index.
_Name: TypeAlias = str | int


@dataclass(frozen=True)
class GoalNode:
    """A goal, or the source of a batch (`goal` is None), and the position of its upper left corner."""

    goal: Goal | None
    batch: int
    x: float
    y: float


@dataclass(frozen=True)
class Line:
    """A line from the right edge of a parent to the left edge of its child."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True)
class Drawing:
    """Nodes and lines with their total width and height, and the width of each node."""

    nodes: Sequence[GoalNode]
    lines: Sequence[Line]
    node_width: float
    width: float
    height: float


def draw_tree(goals: Sequence[Goal]) -> Drawing:
    """Return the drawing of goals, with one tree per batch.

    A goal without its parent among them is attached to the source.
    """
    known = {goal.id: goal for goal in goals}
    roots = sorted({goal.batch for goal in goals}) or [0]
    children: dict[_Name, list[_Name]] = defaultdict(list)
    for goal in goals:
        parent: _Name = goal.batch
        if goal.parent is not None and goal.parent in known:
            parent = goal.parent
        children[parent].append(goal.id)
    order = _depth_first(roots, children)
    rows: dict[_Name, float] = {}
    leaf = 0
    for name, _ in reversed(order):
        below = children.get(name, ())
        if below:
            rows[name] = mean(rows[child] for child in below)
        else:
            rows[name] = leaf
            leaf += 1
    highest = max(leaf - 1, 0)
    node_width = max((_node_width(goal.id) for goal in goals), default=NARROWEST)
    column = node_width + GAP
    places = {name: (depth * column, (highest - rows[name]) * ROW) for name, depth in order}
    nodes = [_node(name, known, *place) for name, place in places.items()]
    lines = [
        Line(
            places[parent][0] + node_width,
            places[parent][1] + HEIGHT / 2,
            places[child][0],
            places[child][1] + HEIGHT / 2,
        )
        for parent, below in children.items()
        for child in below
    ]
    deepest = max(depth for _, depth in order)
    return Drawing(nodes, lines, node_width, deepest * column + node_width, highest * ROW + HEIGHT)


def _node_width(goal_id: str) -> float:
    """Return the width of a node with room for an id and a figure beside it."""
    widths = (_WIDTHS.get(letter, _CAPITAL if letter.isupper() else _OTHER) for letter in goal_id[:LONGEST])
    return max(NARROWEST, round(sum(widths) + _FIGURE))


def _depth_first(
    roots: Sequence[_Name], children: Mapping[_Name, Sequence[_Name]]
) -> list[tuple[_Name, int]]:
    """Return the names with their depths, parents before children."""
    order: list[tuple[_Name, int]] = []
    left = [(root, 0) for root in reversed(roots)]
    while left:
        name, depth = left.pop()
        order.append((name, depth))
        left += [(child, depth + 1) for child in reversed(children.get(name, ()))]
    return order


def _node(name: _Name, known: Mapping[str, Goal], x: float, y: float) -> GoalNode:
    if isinstance(name, int):
        return GoalNode(None, name, x, y)
    return GoalNode(known[name], known[name].batch, x, y)
