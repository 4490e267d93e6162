"""Pictures of a job's trade-offs, for papers and slides; needs matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from mistify.costs.budget import FLOPS, MEMORY, PARAMS
from mistify.jobs.tradeoffs import Point, TradeOff

#: Size in inches, and dots per inch.
_SIZE: Final = (7.2, 4.5)
_DPI: Final = 150

_SOFT, _GOOD, _BAD, _ACCENT = "#59636f", "#1c7a46", "#b3261e", "#1f5fae"

#: Costs shown with metric prefixes: 200k, not 200,000. The others have units with prefixes of their own.
_COUNTED: Final = (FLOPS, PARAMS, MEMORY)

#: Maximum number of goals labelled in a picture; more labels would cover it.
_MOST_NAMED: Final = 20


def write_pictures(trade_offs: Sequence[TradeOff], job: str, directory: Path) -> list[Path]:
    """Write a PNG for each trade-off of the whole score, named after its cost, and return their paths.

    Trade-offs of single outputs are left out. File names of batches after the first one contain its number.

    Args:
        job: The job's id.
        directory: The directory for the files.
    """
    paths = []
    for trade_off in trade_offs:
        if trade_off.output:
            continue
        number = f"-{trade_off.batch}" if trade_off.batch else ""
        path = directory / f"{trade_off.axis}{number}.png"
        picture(trade_off, job).savefig(path, dpi=_DPI)
        paths.append(path)
    return paths


def picture(trade_off: TradeOff, job: str) -> Figure:
    """Return the picture of a trade-off: packages, Pareto front, limits and source."""
    figure = Figure(_SIZE, layout="constrained")
    axes = figure.add_subplot()
    best = trade_off.front
    for number, limit in enumerate(trade_off.limits):
        label = "limit of a goal" if number == 0 else None
        axes.axvline(limit, color=_SOFT, linewidth=0.8, linestyle="--", alpha=0.6, label=label)
    if len(best) > 1:
        costs, scores = zip(*((point.cost, point.score) for point in best), strict=True)
        axes.step(costs, scores, where="post", color=_SOFT, linestyle=":", label="best")
    _scatter(axes, [point for point in trade_off.points if point.met], "met", "o", _GOOD)
    _scatter(axes, [point for point in trade_off.points if not point.met], "not met", "X", _BAD)
    if trade_off.source is not None:
        x, y = trade_off.source
        axes.scatter([x], [y], s=140, marker="*", color=_ACCENT, label="source", zorder=3)
    if len(trade_off.points) <= _MOST_NAMED:
        _name(axes, trade_off.points)
    if trade_off.axis in _COUNTED:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel(", ".join(filter(None, (trade_off.title, trade_off.batch_name))))
    axes.set_ylabel(trade_off.metric.value)
    axes.set_title(job, fontsize=10, color=_SOFT, parse_math=False)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return figure


def _scatter(axes: Axes, points: Sequence[Point], label: str, marker: str, color: str) -> None:
    if points:
        axes.scatter(
            [point.cost for point in points],
            [point.score for point in points],
            s=40,
            marker=marker,
            color=color,
            label=label,
            zorder=3,
        )


def _name(axes: Axes, points: Sequence[Point]) -> None:
    """Label points with their goals, alternating above and below for neighbours."""
    for number, point in enumerate(sorted(points, key=lambda each: each.cost)):
        axes.annotate(
            point.goal,
            (point.cost, point.score),
            (5, -11 if number % 2 else 4),
            textcoords="offset points",
            fontsize=8,
            color=_SOFT,
            parse_math=False,
        )
