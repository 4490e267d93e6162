"""The drawing of a network: rows in execution order, lanes for tensors."""

import re
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from mistify.jobs.channels import Channels
from mistify.jobs.network_graph import GraphNode, NetworkGraph
from mistify_server.web.pages.network_drawing import ROW, Place, draw_network, place_nodes


def nodes_of(*read: Sequence[int], errors: Sequence[float | None] = ()) -> tuple[GraphNode, ...]:
    """Return nodes by what they read."""
    return tuple(
        GraphNode(
            "ADD",
            place,
            f"layer_{place}",
            tuple(inputs),
            (1, 4),
            "INT8",
            4,
            multiply_adds=10 * place,
            error=errors[place] if errors else None,
        )
        for place, inputs in enumerate(read)
    )


def lanes(places: Sequence[Place]) -> list[int]:
    return [place.lane for place in places]


def test_a_chain_stays_in_one_lane() -> None:
    places = place_nodes(nodes_of([], [0], [1]))
    assert places == [Place(0, (), (), True), Place(0, (0,), (), True), Place(0, (0,), (), False)]


def test_a_skip_connection_passes_the_nodes_that_it_skips() -> None:
    places = place_nodes(nodes_of([], [0], [1], [0, 2], [3]))
    assert lanes(places) == [0, 1, 1, 0, 0]
    assert [place.passing for place in places] == [(), (0,), (0,), (), ()]
    assert places[3].read == (0, 1)


def test_branches_have_lanes_of_their_own() -> None:
    places = place_nodes(nodes_of([], [0], [0], [0], [1, 2, 3]))
    assert lanes(places) == [0, 1, 2, 0, 0]
    assert set(places[4].read) == {0, 1, 2}


def test_lanes_that_end_are_used_again() -> None:
    places = place_nodes(nodes_of([], [0], [0, 1], [2], [2, 3]))
    assert lanes(places) == [0, 1, 0, 1, 0]


def test_a_chain_stays_in_its_lane_when_others_end() -> None:
    assert lanes(place_nodes(nodes_of([], [], [0], [1], [3]))) == [0, 1, 0, 1, 1]


@st.composite
def networks(draw: st.DrawFn) -> tuple[GraphNode, ...]:
    read: list[list[int]] = []
    for position in range(draw(st.integers(1, 12))):
        before = st.lists(st.integers(0, position - 1), max_size=3, unique=True) if position else st.just([])
        read.append(draw(before))
    return nodes_of(*read)


@given(networks())
def test_two_tensors_never_share_a_lane_and_no_line_ends_early(nodes: tuple[GraphNode, ...]) -> None:
    places = place_nodes(nodes)
    for row, place in enumerate(places):
        alive = [
            position
            for position in range(row + 1)
            if any(position in later.inputs for later in nodes[row + 1 :])
        ]
        below = [places[position].lane for position in alive]
        assert len(below) == len(set(below))
        assert sorted(below) == sorted([*place.passing, *([place.lane] if place.goes_on else [])])
        assert place.read == tuple(places[each].lane for each in nodes[row].inputs)


def test_lines_connect_the_rows() -> None:
    drawing = draw_network(NetworkGraph("main", "host", nodes_of([], [0], [0, 1])), {})
    first, second, third = drawing.rows
    assert first.path == f"M{first.x:g},14V{ROW}"
    assert second.path.startswith(f"M{first.x:g},0V{ROW}M{first.x:g},0C")
    assert second.path.endswith(f"M{second.x:g},14V{ROW}")
    assert re.findall(r"M([\d.]+),0C", third.path) == [f"{first.x:g}", f"{second.x:g}"]
    assert (first.reads, second.reads, third.reads) == ((), (), (0, 1))


def test_many_lanes_are_closer_to_each_other() -> None:
    wide = nodes_of([], *([0] for _ in range(40)), range(1, 41))
    drawing = draw_network(NetworkGraph("main", "host", wide), {})
    assert drawing.width <= 112
    assert len({row.x for row in drawing.rows}) == 40


def test_the_nodes_in_which_the_error_grows_most_are_marked() -> None:
    errors = [0.0, 0.01, 0.2, 0.25, None, 0.1]
    graph = NetworkGraph("main", "host", nodes_of([], [0], [1], [2], [3], [3], errors=errors), 64)
    drawing = draw_network(graph, {1: Channels(3, 4)})
    assert [row.number for row in drawing.worst] == [2, 3, 1]
    assert [row.is_worst for row in drawing.rows] == [False, True, True, True, False, False]
    assert [row.error for row in drawing.rows] == [0, 4, 80, 100, 0, 40]
    assert [row.work for row in drawing.rows] == [0, 20, 40, 60, 80, 100]
    assert [row.channels for row in drawing.rows][:2] == [None, Channels(3, 4)]


def test_without_errors_nothing_is_marked() -> None:
    drawing = draw_network(NetworkGraph("main", "host", nodes_of([], [0])), {})
    assert drawing.worst == []
    assert not any(row.error for row in drawing.rows)
