"""The goal tree of a job as a drawing: a column for each depth, a row for each leaf (paper 4.2)."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Final

from mistify.jobs.job import Goal

#: Of the drawing, in pixels.
COLUMN: Final = 210
ROW: Final = 40
WIDTH: Final = 170
HEIGHT: Final = 28

_SOURCE: Final = ""


@dataclass(frozen=True)
class Node:
    """A goal, or the source, and the place of its upper left corner; `goal` is None of the source."""

    goal: Goal | None
    x: float
    y: float


@dataclass(frozen=True)
class Line:
    """From the right of a parent to the left of a goal that was adapted from it."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True)
class Drawing:
    """Nodes and lines, and the width and the height that they take."""

    nodes: Sequence[Node]
    lines: Sequence[Line]
    width: float
    height: float


def draw_tree(goals: Sequence[Goal]) -> Drawing:
    """Return the drawing of some goals; one whose parent is not among them hangs on the source."""
    known = {goal.id: goal for goal in goals}
    children: dict[str, list[str]] = defaultdict(list)
    for goal in goals:
        children[goal.parent if goal.parent in known and goal.parent is not None else _SOURCE].append(goal.id)
    order = _depth_first(children)
    rows: dict[str, float] = {}
    leaf = 0
    for name, _ in reversed(order):
        below = children.get(name, ())
        if below:
            rows[name] = mean(rows[child] for child in below)
        else:
            rows[name] = leaf
            leaf += 1
    highest = max(leaf - 1, 0)
    places = {name: (depth * COLUMN, (highest - rows[name]) * ROW) for name, depth in order}
    nodes = [Node(known.get(name), *place) for name, place in places.items()]
    lines = [
        Line(
            places[parent][0] + WIDTH,
            places[parent][1] + HEIGHT / 2,
            places[child][0],
            places[child][1] + HEIGHT / 2,
        )
        for parent, below in children.items()
        for child in below
    ]
    deepest = max(depth for _, depth in order)
    return Drawing(nodes, lines, deepest * COLUMN + WIDTH, highest * ROW + HEIGHT)


def _depth_first(children: dict[str, list[str]]) -> list[tuple[str, int]]:
    """Return the names with their depths, parents before their children."""
    order: list[tuple[str, int]] = []
    left = [(_SOURCE, 0)]
    while left:
        name, depth = left.pop()
        order.append((name, depth))
        left += [(child, depth + 1) for child in reversed(children.get(name, ()))]
    return order
