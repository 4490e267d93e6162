"""`mistify layers`: the operators of a package on a server, with their costs and errors."""

from dataclasses import replace

import pytest

from mistify.jobs.details import GoalDetails, LayerChange, LayerFigures, LayerTable
from tests.support.network_graphs import network_graph

GRAPH = network_graph(3)
TABLE = LayerTable(
    "host",
    (LayerChange("stem", "Conv2D", ("stem",), LayerFigures(64, 9, 9, 0.1), LayerFigures(24, 9, 9, 0.1)),),
)
DETAILS = GoalDetails(TABLE, (), 0, GRAPH)


def rows_of(text):
    return [line.split() for line in text.splitlines() if line[:2].strip().isdigit()]


@pytest.mark.parametrize("columns", [60, 80, 100, 160])
def test_each_operator_is_a_line_that_fits_the_console(mistify, service, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    service.fake.details = DETAILS
    result = mistify("layers", "job-1", "half", "--server", service.address)
    assert result.exit_code == 0
    rows = rows_of(result.stdout)
    assert [row[0] for row in rows] == [str(place) for place in range(len(GRAPH.nodes))]
    assert [row[1] for row in rows] == [node.layer or "-" for node in GRAPH.nodes]
    lines = result.stdout.splitlines()
    assert all(len(line) <= columns for line in lines[: len(rows) + 2])
    assert rows[2][-1] == "1%"


def test_a_wide_console_shows_all_figures(mistify, service, monkeypatch):
    monkeypatch.setenv("COLUMNS", "170")
    service.fake.details = DETAILS
    rows = rows_of(mistify("layers", "job-1", "half", "--server", service.address).stdout)
    assert " ".join(rows[2]) == "2 stem CONV_2D 1 1x32x32x24 int8 24.6KB 5.21K int8 300K 24 of 64 100us 1%"
    assert " ".join(rows[6]) == "6 block_1_add ADD 2, 5 1x32x32x24 int8 24.6KB 1%"
    assert " ".join(rows[-2][:3]) == "15 - WHILE"
    assert "?" in rows[-2]


def test_the_operators_in_which_the_error_grows_most_are_named(mistify, service):
    service.fake.details = DETAILS
    stdout = mistify("layers", "job-1", "half", "--server", service.address).stdout
    said = "over 64 validation examples, the error grows most in 10 block_2_add (1.6% to 12%), "
    assert said in " ".join(stdout.split())


def test_errors_are_left_out_if_none_were_measured(mistify, service):
    nodes = tuple(replace(node, error=None) for node in GRAPH.nodes)
    service.fake.details = replace(DETAILS, graph=replace(GRAPH, nodes=nodes, examples=0))
    stdout = mistify("layers", "job-1", "half", "--server", service.address).stdout
    assert "error" not in stdout
    assert "%" not in stdout


def test_a_package_of_an_earlier_version_has_no_operators(mistify, service):
    result = mistify("layers", "job-1", "half", "--server", service.address)
    assert result.exit_code == 3
    assert 'the operators of the goal "half" are not known' in result.stderr
