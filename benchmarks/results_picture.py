"""The picture in the README, drawn from the tables of `RESULTS.md`.

`python -m benchmarks.results_picture` writes `docs/pictures/results.svg`. Nothing is measured here: the left
panel shows the goals of the section `tradeoffs`, the right one the times of `collective`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Final, TypeAlias

RESULTS: Final = Path(__file__).with_name("RESULTS.md")
PICTURE: Final = Path(__file__).parents[1] / "docs" / "pictures" / "results.svg"

Points: TypeAlias = Sequence[tuple[float, float]]
Scale: TypeAlias = Callable[[float], float]

_WIDTH, _HEIGHT = 880, 360
_COLOURS: Final = ("#1f6feb", "#d9480f", "#2b8a3e", "#8250df")
_DARK, _INK, _GRID = "#1f2328", "#57606a", "#d0d7de"


@dataclass(frozen=True)
class Panel:
    """One diagram of the picture.

    Attributes:
        left: Distance of the plotting area from the left edge of the picture, in pixels.
        title: Heading above the diagram.
        below: Label of the horizontal axis.
        ticks: Positions and labels along the horizontal axis, which is logarithmic, from the left.
        heights: Positions along the vertical axis, from the lowest; its unit follows each label.
        unit: Unit of the vertical axis.
        key: Position of the first line's name, in pixels.
        lines: Name of the line -> its points.
    """

    left: int
    title: str
    below: str
    ticks: Sequence[tuple[float, str]]
    heights: Sequence[float]
    unit: str
    key: tuple[int, int]
    lines: Mapping[str, Points]


def table(section: str, text: str) -> list[list[str]]:
    """Return the body cells of the first table in a section of RESULTS.md, row by row."""
    body = re.split(rf"^## {re.escape(section)}$", text, flags=re.MULTILINE)[1].partition("\n## ")[0]
    rows = next(part for part in body.split("\n\n") if part.startswith("|")).splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def tradeoffs(text: str) -> dict[str, Points]:
    """Return the results of the goals of each axis: (percent of the source's cost, accuracy in percent)."""
    rows = table("tradeoffs", text)
    return {
        axis: [(100 * _number(row[at]), _number(row[at + 1])) for row in rows if row[at + 1]]
        for axis, at in (
            ("multiply-adds", 1),
            ("memory, any precision", 3),
            ("latency", 5),
            ("latency, any precision", 7),
        )
    }


def times(text: str) -> dict[str, Points]:
    """Return the minutes for numbers of goals at equal accuracy: (goals, minutes), together and singly."""
    rows = [[_number(cell) for cell in (row[0], *row[4:])] for row in table("collective", text)]
    factors_of_tools = {"together": [1.0] * len(rows)} | {
        f"one by one, {tool}": [row[place] for row in rows]
        for tool, place in (("Mistify", 2), ("Torch-Pruning", 3))
    }
    return {
        name: [(row[0], row[1] * factor / 60) for row, factor in zip(rows, factors, strict=True)]
        for name, factors in factors_of_tools.items()
    }


def picture(text: str) -> str:
    """Return the picture of the tables in a text like RESULTS.md, as SVG."""
    panels = (
        Panel(
            60,
            "ResNet-8, one job of 30 goals: accuracy",
            "cost that is left, of the source's",
            [(share, f"{share} %") for share in (4, 10, 20, 50, 100)],
            range(30, 91, 10),
            " %",
            (225, 226),
            tradeoffs(text),
        ),
        Panel(
            510,
            "ResNet-8: time to the same accuracy",
            "goals",
            [(count, str(count)) for count in (4, 8, 16, 32, 64, 128)],
            range(0, 101, 20),
            " min",
            (530, 68),
            times(text),
        ),
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="13">'
    )
    background = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    return "\n".join([head, background, *(part for panel in panels for part in _drawn(panel)), "</svg>\n"])


def _drawn(panel: Panel) -> Iterator[str]:
    right, top, bottom = panel.left + 340, 48, 300
    x = _scale(log(panel.ticks[0][0]), log(panel.ticks[-1][0]), panel.left, right)
    y = _scale(panel.heights[0], panel.heights[-1], bottom, top)
    yield _text(panel.left, 26, panel.title, fill=_DARK, size=15)
    for height in panel.heights:
        yield f'<path d="M{panel.left} {y(height):.0f}H{right}" stroke="{_GRID}"/>'
        yield _text(panel.left - 8, y(height) + 4, f"{height:g}{panel.unit}", anchor="end")
    for value, label in panel.ticks:
        yield _text(x(log(value)), bottom + 20, label, anchor="middle")
    yield _text((panel.left + right) / 2, bottom + 44, panel.below, anchor="middle")
    for place, (name, points) in enumerate(panel.lines.items()):
        yield from _line([(x(log(value)), y(height)) for value, height in points], _COLOURS[place])
        yield from _named(name, panel.key[0], panel.key[1] + 20 * place, _COLOURS[place])


def _line(points: Points, colour: str) -> Iterator[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'


def _named(name: str, x: int, y: int, colour: str) -> Iterator[str]:
    yield f'<circle cx="{x}" cy="{y - 4}" r="5" fill="{colour}"/>'
    yield _text(x + 12, y, name, fill=_DARK)


def _text(x: float, y: float, text: str, *, anchor: str = "start", fill: str = _INK, size: int = 13) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}">{text}</text>'
    )


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _number(cell: str) -> float:
    return float(cell.removesuffix("%").replace(",", ""))


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(picture(RESULTS.read_text()))


if __name__ == "__main__":
    main()
