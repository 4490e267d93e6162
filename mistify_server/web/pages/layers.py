"""The layers of a goal's network before and after adaptation, as shown on its page."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mistify.jobs.details import LayerChange, LayerFigures, LayerTable

_NOTHING = LayerFigures(0, 0, 0, 0.0)


@dataclass(frozen=True)
class Bar:
    """A figure before and after adaptation, as percentages of the largest one in its column."""

    before: float
    after: float


@dataclass(frozen=True)
class LayerLine:
    """A layer with bars for its width, multiply-adds and time."""

    layer: LayerChange
    width: Bar
    multiply_adds: Bar
    milliseconds: Bar


@dataclass(frozen=True)
class ShownLayers:
    """The layers of a network, and the totals of their figures, except widths."""

    lines: Sequence[LayerLine]
    before: LayerFigures
    after: LayerFigures


def shown_layers(table: LayerTable) -> ShownLayers:
    """Return the layers of a table with their bars and totals."""
    pairs = [(layer, layer.before or _NOTHING, layer.after or _NOTHING) for layer in table.layers]
    figures = [figure for _, before, after in pairs for figure in (before, after)]
    most = LayerFigures(
        max((each.width for each in figures), default=0),
        0,
        max((each.multiply_adds for each in figures), default=0),
        max((each.milliseconds for each in figures), default=0.0),
    )
    lines = [
        LayerLine(
            layer,
            _bar(before.width, after.width, most.width),
            _bar(before.multiply_adds, after.multiply_adds, most.multiply_adds),
            _bar(before.milliseconds, after.milliseconds, most.milliseconds),
        )
        for layer, before, after in pairs
    ]
    return ShownLayers(lines, _sum([pair[1] for pair in pairs]), _sum([pair[2] for pair in pairs]))


def _bar(before: float, after: float, most: float) -> Bar:
    return Bar(*(round(100 * figure / most, 1) if most else 0.0 for figure in (before, after)))


def _sum(figures: Sequence[LayerFigures]) -> LayerFigures:
    return replace(
        _NOTHING,
        params=sum(each.params for each in figures),
        multiply_adds=sum(each.multiply_adds for each in figures),
        milliseconds=sum(each.milliseconds for each in figures),
    )
