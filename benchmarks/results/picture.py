"""The picture in the README, drawn from records.

The left panel shows the goals of `porting.tradeoffs`, the right one the times of `porting.collective`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import log
from typing import Final, TypeAlias

from benchmarks.harness.records import REPOSITORY, Record

PICTURE: Final = REPOSITORY / "docs" / "pictures" / "results.svg"

#: Names of lines -> prefixes of the figures that they show.
_SERIES: Final = {
    "multiply-adds": "FLOP",
    "memory, any precision": "memory",
    "latency": "latency-float32",
    "latency, any precision": "latency",
}
_TOOLS: Final = {"Mistify": "morphnet", "Torch-Pruning": "torch_pruning"}

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


def tradeoffs(figures: Mapping[str, float | None]) -> dict[str, Points]:
    """Return the results of the goals on each axis: (percent of the source's cost, accuracy in percent)."""
    return {name: list(_reached(figures, f"resnet8_{series}")) for name, series in _SERIES.items()}


def times(figures: Mapping[str, float | None]) -> dict[str, Points]:
    """Return the minutes of adaptation at equal accuracy: (goals, minutes), together and one by one."""
    lines: dict[str, list[tuple[float, float]]] = {"together": [], **{_alone(tool): [] for tool in _TOOLS}}
    for goals in (4, 16, 64, 128):
        seconds = figures[f"resnet8_adapting_seconds_at_{goals}"] or 0.0
        lines["together"].append((goals, seconds / 60))
        for tool, name in _TOOLS.items():
            factor = figures[f"resnet8_adapting_over_{name}_at_{goals}"] or 0.0
            lines[_alone(tool)].append((goals, seconds * factor / 60))
    return dict(lines)


def _alone(tool: str) -> str:
    return f"one by one, {tool}"


def _reached(figures: Mapping[str, float | None], series: str) -> Iterator[tuple[float, float]]:
    for number in count():
        share, accuracy = (figures.get(f"{series}_{number}{suffix}") for suffix in ("", "_accuracy"))
        if share is None or accuracy is None:
            return
        yield 100 * share, accuracy


def _latest(records: Sequence[Record], benchmark: str) -> Mapping[str, float | None]:
    """Return the figures of the latest record of ResNet-8."""
    own = (record for record in records if record.benchmark == benchmark and not record.quick)
    return [record.figures for record in own if record.network in (None, "resnet8")][-1]


def picture(records: Sequence[Record]) -> str:
    """Return the picture as SVG.

    Args:
        records: All records, oldest first.
    """
    panels = (
        Panel(
            60,
            "ResNet-8, one job of 30 goals: accuracy",
            "remaining cost, relative to the source",
            [(share, f"{share} %") for share in (4, 10, 20, 50, 100)],
            range(30, 91, 10),
            " %",
            (225, 226),
            tradeoffs(_latest(records, "porting.tradeoffs")),
        ),
        Panel(
            510,
            "ResNet-8: adaptation time at equal accuracy",
            "goals",
            [(count, str(count)) for count in (4, 8, 16, 32, 64, 128)],
            range(0, 101, 20),
            " min",
            (530, 68),
            times(_latest(records, "porting.collective")),
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
