"""Errors and channels of the operators of a network."""

from dataclasses import replace

import pytest

from mistify.jobs.channels import Channels, kept_channels
from mistify.jobs.details import GoalDetails, LayerChange, LayerFigures, LayerTable
from mistify.jobs.network_graph import INPUT, GraphNode, NetworkGraph, error_growth, worst_nodes


def node(layer: str, *inputs: int, error: float | None = None, width: int = 4, weights: int = 9) -> GraphNode:
    return GraphNode(
        "CONV_2D", 0, layer, inputs, (1, 8, 8, width), "INT8", 256 * width, weights=weights, error=error
    )


IMAGE = GraphNode(INPUT, None, "image", (), (1, 8, 8, 3), "FLOAT32", 768, error=0.0)


def graph(*nodes: GraphNode) -> NetworkGraph:
    return NetworkGraph("main", "host", (IMAGE, *nodes), 64)


def test_an_error_grows_beyond_the_largest_one_before_it() -> None:
    grown = error_growth(
        graph(node("a", 0, error=0.1), node("b", 0, error=0.3), node("c", 1, 2, error=0.25), node("d", 3))
    )
    assert grown == pytest.approx({0: 0.0, 1: 0.1, 2: 0.3, 3: -0.05})


def test_nothing_grows_after_unknown_errors() -> None:
    assert error_growth(graph(node("a", 0), node("b", 1, error=0.2))) == {0: 0.0}


def test_the_worst_nodes_are_those_in_which_the_error_grows_most() -> None:
    errors = (0.1, 0.3, 0.2, 0.25, 0.26)
    chain = [node(f"layer_{place}", place, error=error) for place, error in enumerate(errors)]
    assert worst_nodes(graph(*chain)) == [2, 1, 4]
    assert worst_nodes(graph(node("a", 0, error=0.0))) == []


def test_channels_are_those_of_the_layer_that_the_operator_writes() -> None:
    before, after = LayerFigures(16, 0, 0, 0.0), LayerFigures(4, 0, 0, 0.0)
    changes = (
        LayerChange("cut", "Conv2D", ("cut",), before, after),
        LayerChange("new", "Resizing", (), None, after),
        LayerChange("gone", "Conv2D", (), before, None),
    )
    found = GoalDetails(
        LayerTable("host", changes),
        (),
        0,
        graph(
            node("cut", 0), node("cut", 1, weights=0), node("cut", 2, width=5), node("new", 3), node("", 4)
        ),
    )
    assert kept_channels(found) == {1: Channels(kept=4, before=16)}
    assert kept_channels(replace(found, layers=None)) == {}
    assert kept_channels(replace(found, graph=None)) == {}
