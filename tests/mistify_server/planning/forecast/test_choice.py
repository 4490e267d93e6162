from collections.abc import Mapping
from typing import Any

import pytest

from mistify_server.planning.forecast.choice import Choice, Chooser, Edge
from mistify_server.planning.forecast.experience import Experience
from mistify_server.store.edges import EdgeRecord
from mistify_server.tasks.estimates import Candidate
from tests.mistify_server.planning.forecast.experiences import CANDIDATES, TRAITS, case, seen

EDGE = Edge(halvings=1.0, distance=1.0, share=1.0)


def chooser(
    records: list[EdgeRecord] | None = None, candidates: dict[str, Candidate] = CANDIDATES
) -> Chooser:
    return Chooser(TRAITS, "own", candidates, Experience(records or [], candidates))


def chosen(chooser: Chooser, edge: Edge = EDGE, prepared: Mapping[str, float] | None = None) -> Choice:
    """Of one of four edges."""
    return chooser([edge] * 4, prepared)[0]


def compared(better: str, worse: str, gap: float, count: int = 6) -> list[EdgeRecord]:
    """Edges on which one algorithm lost less than the other."""
    return [
        seen(case(0.5 + 0.2 * number, algorithm=algorithm), 0.05 + (gap if algorithm == worse else 0.0))
        for number in range(count)
        for algorithm in (better, worse)
    ]


def test_of_algorithms_as_good_the_faster_one_is_taken() -> None:
    choice = chosen(chooser())
    assert choice.algorithm == "morphnet"
    assert "chamnet" in choice.reason
    assert "times as long" in choice.reason
    assert "benchmarks" in choice.reason


@pytest.mark.parametrize(("better", "worse"), [("chamnet", "morphnet"), ("morphnet", "chamnet")])
def test_what_worked_in_this_store_changes_the_choice(better: str, worse: str) -> None:
    choice = chosen(chooser(compared(better, worse, 0.04)))
    assert choice.algorithm == better
    assert "12 edges of this model and data" in choice.reason


def test_a_difference_that_does_not_matter_changes_nothing() -> None:
    assert chosen(chooser(compared("chamnet", "morphnet", 0.001))).algorithm == "morphnet"


def test_edges_differ_by_how_far_they_go() -> None:
    """The slow algorithm is better on long edges alone."""
    records = [
        seen(
            case(0.3, algorithm=algorithm).model_copy(update={"distance": 0.3}),
            0.01,
        )
        for algorithm in ("morphnet", "chamnet")
        for _ in range(4)
    ]
    records += [
        seen(
            case(3.0, algorithm=algorithm).model_copy(update={"distance": 3.0}),
            0.25 if algorithm == "morphnet" else 0.1,
        )
        for algorithm in ("morphnet", "chamnet")
        for _ in range(4)
    ]
    choose = chooser(records)
    assert chosen(choose, Edge(halvings=3.0, distance=3.0, share=1.0)).algorithm == "chamnet"
    assert chosen(choose, Edge(halvings=0.05, distance=0.05, share=1.0)).algorithm == "morphnet"


def test_the_kind_of_network_counts() -> None:
    """What depth gains is there in networks with blocks to leave out alone."""
    deep = {**CANDIDATES, "chamnet": CANDIDATES["chamnet"].model_copy(update={"gain": 0.01})}
    assert chosen(chooser(candidates=deep)).algorithm == "chamnet"


def test_the_same_edge_gets_the_same_choice() -> None:
    records = compared("chamnet", "morphnet", 0.02)
    assert chosen(chooser(records)) == chosen(chooser(records))


def test_an_algorithm_that_has_not_prepared_joins_no_tree_that_exists() -> None:
    choose = chooser(compared("chamnet", "morphnet", 0.04))
    assert chosen(choose, prepared={}).algorithm == "morphnet"
    assert chosen(choose, prepared={"chamnet": 3.0}).algorithm == "chamnet"


def test_without_another_one_there_is_nothing_to_choose() -> None:
    only: Any = {"morphnet": CANDIDATES["morphnet"]}
    choice = chosen(chooser(candidates=only))
    assert (choice.algorithm, choice.reason) == ("morphnet", "no other algorithm can be chosen")
    slow: Any = {"chamnet": CANDIDATES["chamnet"]}
    assert chosen(chooser(candidates=slow), prepared={}).algorithm == "chamnet"


@pytest.mark.parametrize(("limits_latency", "algorithm"), [(False, "chamnet"), (True, "morphnet")])
def test_an_algorithm_may_be_worse_under_limits_on_latency(limits_latency: bool, algorithm: str) -> None:
    """By a tenth over two halvings, where in all else it loses 0.04 less."""
    worse = CANDIDATES["chamnet"].model_copy(update={"gain_at_latency": -0.05})
    edge = Edge(halvings=2.0, distance=1.0, share=1.0, limits_latency=limits_latency)
    records = compared("chamnet", "morphnet", 0.04)
    assert chosen(chooser(records, {**CANDIDATES, "chamnet": worse}), edge).algorithm == algorithm
