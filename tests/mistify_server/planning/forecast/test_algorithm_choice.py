import re
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from executors.contract.algorithm import built_in
from executors.contract.profile import AlgorithmProfile
from mistify.jobs.plan import Estimate
from mistify_server.planning.forecast.algorithm_choice import Choice, Chooser, Edge, longest_paths
from mistify_server.planning.forecast.history import ForecastHistory
from mistify_server.store.edges import EdgeRecord
from mistify_server.store.plans import NodePlan
from tests.mistify_server.planning.forecast.histories import FEATURES, PROFILES, case, seen

EDGE = Edge(halvings=1.0, distance=1.0, share=1.0)


def chooser(
    records: list[EdgeRecord] | None = None, profiles: dict[str, AlgorithmProfile] = PROFILES
) -> Chooser:
    return Chooser(FEATURES, "own", profiles, ForecastHistory(records or [], profiles))


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
    assert "times the time" in choice.reason
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
    deep = {**PROFILES, "chamnet": PROFILES["chamnet"].model_copy(update={"loss_per_halving": 0.02})}
    assert chosen(chooser(profiles=deep)).algorithm == "chamnet"


def test_the_same_edge_gets_the_same_choice() -> None:
    records = compared("chamnet", "morphnet", 0.02)
    assert chosen(chooser(records)) == chosen(chooser(records))


def test_an_algorithm_that_has_not_prepared_joins_no_tree_that_exists() -> None:
    choose = chooser(compared("chamnet", "morphnet", 0.04))
    assert chosen(choose, prepared={}).algorithm == "morphnet"
    assert chosen(choose, prepared={"chamnet": 3.0}).algorithm == "chamnet"


def test_without_another_one_there_is_nothing_to_choose() -> None:
    only: Any = {"morphnet": PROFILES["morphnet"]}
    choice = chosen(chooser(profiles=only))
    assert (choice.algorithm, choice.reason) == ("morphnet", "no other algorithm can be chosen")
    slow: Any = {"chamnet": PROFILES["chamnet"]}
    assert chosen(chooser(profiles=slow), prepared={}).algorithm == "chamnet"


#: Networks that share 1,200 steps for every two halvings; MorphNet loses the same with as many steps.
SHARING = PROFILES["morphnet"].model_copy(
    update={
        "least_path": 32,
        "preparation": tuple(1_200 * max(1, round(place / 8)) for place in range(33)),
        "shared_steps": 700,
        "adaptation": (0,) * 33,
        "tune_steps": 0,
    }
)


def path_of(goals: int, **changes: Any) -> list[Edge]:
    """Return the edges of a path down to an eighth."""
    distance = 3 / goals
    edges = (
        Edge(halvings=distance * place, distance=distance, share=2 ** (distance * (1 - place)), path=goals)
        for place in range(1, goals + 1)
    )
    return [replace(edge, **changes) for edge in edges]


def algorithms(edges: list[Edge], prepared: Mapping[str, float] | None = None, **changes: Any) -> set[str]:
    profiles = {"morphnet": PROFILES["morphnet"], "nested": SHARING.model_copy(update=changes)}
    return {choice.algorithm for choice in chooser(profiles=profiles)(edges, prepared)}


@pytest.mark.parametrize(
    ("goals", "algorithm"), [(1, "morphnet"), (31, "morphnet"), (32, "nested"), (128, "nested")]
)
def test_many_goals_on_one_path_share_their_training(goals: int, algorithm: str) -> None:
    assert algorithms(path_of(goals)) == {algorithm}


def test_goals_that_are_on_no_path_together_do_not() -> None:
    assert algorithms(path_of(64, path=2)) == {"morphnet"}


def test_what_loses_more_is_not_chosen_for_any_number_of_goals() -> None:
    assert algorithms(path_of(128), loss_per_halving=0.05) == {"morphnet"}


@pytest.mark.parametrize(
    ("rate", "step", "algorithm"),
    [(0.035, 1.0, "nested"), (0.035, 20.0, "morphnet"), (0.03, 20.0, "nested"), (0.04, 1.0, "morphnet")],
)
def test_what_loses_a_little_more_has_to_be_much_faster(rate: float, step: float, algorithm: str) -> None:
    assert algorithms(path_of(128), loss_per_halving=rate, preparation_step=step) == {algorithm}


def test_nothing_is_trained_where_the_settings_leave_no_step() -> None:
    untrained = PROFILES["morphnet"].model_copy(update={"adaptation": (0,) * 33, "tune_steps": 0})
    choices = chooser(profiles={"morphnet": untrained, "nested": SHARING})(path_of(64))
    assert {choice.algorithm for choice in choices} == {"morphnet"}


def test_it_is_all_or_nothing_where_too_few_would_share() -> None:
    """Limits on latency, under which it was not measured, may leave too few."""
    for limited, chosen_ones in ((8, {"morphnet"}), (4, {"morphnet", "nested"})):
        some = [replace(edge, limits_latency=number < limited) for number, edge in enumerate(path_of(36))]
        assert algorithms(some) == chosen_ones


def test_targets_are_left_to_algorithms_that_can_go_on() -> None:
    assert algorithms(path_of(64, has_targets=True)) == {"morphnet"}
    assert algorithms(path_of(64, has_targets=True), tune_steps=10) == {"nested"}


def test_a_single_goal_joins_those_that_share_where_it_is_not_smaller() -> None:
    added = [replace(path_of(32)[15], path=33)]
    assert algorithms(added, {"nested": 3.0}) == {"nested"}
    assert algorithms(added, {"nested": 1.0}) == {"morphnet"}
    assert algorithms(added, {}) == {"morphnet"}


def test_what_it_takes_to_prepare_stands_in_the_reason() -> None:
    profiles = {"morphnet": PROFILES["morphnet"], "nested": SHARING}
    choice = chooser(profiles=profiles)(path_of(32))[0]
    assert "in 0 steps (after 2,400 for 32 goals together)" in choice.reason


def test_a_node_is_on_the_longest_path_through_it() -> None:
    """Of 0 - 1 - 2 - 5, 1 - 3 and 4."""
    parents = {0: None, 1: 0, 2: 1, 3: 1, 4: None}
    nodes = [
        NodePlan(index=index, parent=parent, budget={}, targets=(), seed=0, goals=("g",))
        for index, parent in parents.items()
    ]
    longest = longest_paths([*nodes, nodes[0].model_copy(update={"index": 5, "parent": 2})])
    assert {index: longest[index] for index in (*parents, 5)} == {0: 4, 1: 4, 2: 4, 3: 3, 4: 1, 5: 4}


def default_profile(name: str) -> AlgorithmProfile:
    """Return the profile of an algorithm with its default settings, for any source."""
    algorithm = built_in()[name]
    module, _, function = algorithm.profile.partition(":")
    profile: AlgorithmProfile = getattr(import_module(module), function)(algorithm.params(), None)
    return profile


DEFAULTS = {name: default_profile(name) for name in ("morphnet", "chamnet", "nested")}


@pytest.mark.parametrize(
    ("goals", "algorithm"), [(1, "morphnet"), (16, "morphnet"), (32, "nested"), (128, "nested")]
)
def test_with_default_settings_many_goals_share_their_training(goals: int, algorithm: str) -> None:
    """It should lose nearly one point more on average, and takes a third of the time or less."""
    choices = chooser(profiles=DEFAULTS)(path_of(goals))
    assert {choice.algorithm for choice in choices} == {algorithm}
    if goals == 128:
        assert "averaged over 128 goals" in choices[0].reason
        assert "7.1 times the time" in choices[0].reason


#: What a reason says of an algorithm on one edge, and of two on average.
OF_ONE = re.compile(r"(\w+) (-?[\d.]+)% in ([\d.]+) times the time")
AVERAGED = re.compile(
    r" over \d+ goals? (-?[\d.]+)%, compared with [\w ]+ (-?[\d.]+)% in ([\d.]+) times the time"
)


def contradicted(choice: Choice, sharing: str) -> bool:
    """Whether the figures that a reason prints speak for another algorithm than the one that was chosen."""
    rounding = 0.11
    (lost,) = re.findall(r"expected to lose (-?[\d.]+)%", choice.reason)
    alone, *averages = choice.reason.split("; averaged")
    for name, other, ratio in OF_ONE.findall(alone):
        less = float(lost) - float(other)
        as_good = less > -0.5 + rounding
        if name == choice.algorithm or less > 0.5 + rounding or (as_good and float(ratio) < 0.9):
            return True
    for average in averages:
        ((mean, other, ratio),) = AVERAGED.findall(average)
        more, speed = float(mean) - float(other), float(ratio)
        if choice.algorithm != sharing:
            more, speed = -more, 1 / speed
        wins = speed > 1 if -0.5 <= more <= 0.5 else more < 0 or (more <= 1 and speed > 3)
        if wins != (choice.algorithm == sharing):
            return True
    return False


@pytest.mark.parametrize("rate", [0.02, 0.03, 0.034, 0.04, 0.06])
@pytest.mark.parametrize("steps", [20, 100, 300, 600])
@pytest.mark.parametrize("goals", [8, 32, 36, 128])
def test_no_reason_contradicts_its_choice(rate: float, steps: int, goals: int) -> None:
    profiles = {
        **DEFAULTS,
        "morphnet": DEFAULTS["morphnet"].model_copy(update={"tune_steps": steps}),
        "nested": DEFAULTS["nested"].model_copy(update={"loss_per_halving": rate}),
    }
    edges = [replace(edge, limits_latency=number == 0) for number, edge in enumerate(path_of(goals))]
    choices = chooser(profiles=profiles)(edges)
    assert [choice.reason for choice in choices if contradicted(choice, "nested")] == []
    limited = "averaged" in choices[0].reason
    assert {"averaged" in choice.reason for choice in choices[1:]} == {goals > 32}
    assert not limited


def test_a_reason_without_the_average_that_decided_would_be_found() -> None:
    """As they were printed: by what an edge loses alone, though averages had decided."""
    reason = (
        "expected to lose 0.8% of the source's accuracy at its parent's costs in 650 steps, compared with "
        "nested 1.0% in 0.1 times the time, based on benchmarks"
    )
    assert contradicted(Choice("morphnet", reason, Estimate(0.008, 0.01)), "nested")
