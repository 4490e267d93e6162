"""Layers on the page of a goal."""

from mistify.jobs.details import LayerChange, LayerFigures, LayerTable
from mistify_server.web.pages.layers import Bar, shown_layers

STEM = LayerChange(
    "stem", "Conv2D", ("stem",), LayerFigures(16, 160, 800, 0.5), LayerFigures(4, 40, 200, 0.125)
)
GONE = LayerChange("inner", "Conv2D", ("inner",), LayerFigures(8, 64, 400, 1.0), None)
NEW = LayerChange("resize", "Resizing", (), None, LayerFigures(2, 0, 0, 0.25))


def test_bars_are_relative_to_the_largest_layer() -> None:
    shown = shown_layers(LayerTable("host", (STEM, GONE, NEW)))
    assert [line.width for line in shown.lines] == [Bar(100, 25), Bar(50, 0), Bar(0, 12.5)]
    assert [line.multiply_adds for line in shown.lines] == [Bar(100, 25), Bar(50, 0), Bar(0, 0)]
    assert [line.milliseconds for line in shown.lines] == [Bar(50, 12.5), Bar(100, 0), Bar(0, 25)]


def test_the_sums_are_those_of_the_networks() -> None:
    shown = shown_layers(LayerTable("host", (STEM, GONE, NEW)))
    assert (shown.before.params, shown.before.multiply_adds, shown.before.milliseconds) == (224, 1_200, 1.5)
    assert (shown.after.params, shown.after.multiply_adds, shown.after.milliseconds) == (40, 200, 0.375)


def test_nothing_is_drawn_for_a_network_without_layers() -> None:
    assert shown_layers(LayerTable("host", ())).lines == []
