import re
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from executors.contract.algorithm import built_in
from executors.contract.profile import AlgorithmProfile
from executors.structure import analyse
from mistify.jobs.plan import Estimate
from mistify_server.planning.forecast.algorithm_choice import Choice, Chooser, Edge, longest_paths
from mistify_server.planning.forecast.history import ForecastHistory
from mistify_server.store.edges import EdgeRecord
from mistify_server.store.plans import NodePlan
from tests.executors.conftest import small_resnet
from tests.mistify_server.planning.forecast.histories import FEATURES, PROFILES, case, seen

EDGE = Edge(halvings=1.0, distance=1.0, share=1.0)


def chooser(
    records: list[EdgeRecord] | None = None, profiles: dict[str, AlgorithmProfile] = PROFILES
) -> Chooser:
    return Chooser(FEATURES, "own", profiles, ForecastHistory(records or [], profiles))


def chosen(chooser: Chooser, edge: Edge = EDGE, prepared: Mapping[str, float] | None = None) -> Choice:
    """Choose for one of four edges."""
    return chooser([edge] * 4, prepared)[0]


def compared(better: str, worse: str, gap: float, count: int = 6) -> list[EdgeRecord]:
    """Return edges on which one algorithm lost less than the other."""
    return [
        seen(case(0.5 + 0.2 * number, algorithm=algorithm), 0.05 + (gap if algorithm == worse else 0.0))
        for number in range(count)
        for algorithm in (better, worse)
    ]


def test_the_faster_of_equally_good_algorithms_is_chosen() -> None:
    choice = chosen(chooser())
    assert choice.algorithm == "morphnet"
    assert "chamnet" in choice.reason
    assert "times the time" in choice.reason
    assert "benchmarks" in choice.reason


@pytest.mark.parametrize(("better", "worse"), [("chamnet", "morphnet"), ("morphnet", "chamnet")])
def test_results_in_this_store_change_the_choice(better: str, worse: str) -> None:
    choice = chosen(chooser(compared(better, worse, 0.04)))
    assert choice.algorithm == better
    assert "12 edges of this model and data" in choice.reason


def test_an_insignificant_difference_does_not_change_the_choice() -> None:
    assert chosen(chooser(compared("chamnet", "morphnet", 0.001))).algorithm == "morphnet"


def test_the_choice_depends_on_the_distance_of_an_edge() -> None:
    """The slow algorithm is only better on long edges."""
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


def test_the_choice_depends_on_the_kind_of_network() -> None:
    """Removing depth only helps networks with removable blocks."""
    deep = {**PROFILES, "chamnet": PROFILES["chamnet"].model_copy(update={"loss_per_halving": 0.02})}
    assert chosen(chooser(profiles=deep)).algorithm == "chamnet"


def test_the_choice_is_deterministic() -> None:
    records = compared("chamnet", "morphnet", 0.02)
    assert chosen(chooser(records)) == chosen(chooser(records))


def test_an_algorithm_without_a_preparation_is_not_chosen_for_an_existing_tree() -> None:
    choose = chooser(compared("chamnet", "morphnet", 0.04))
    assert chosen(choose, prepared={}).algorithm == "morphnet"
    assert chosen(choose, prepared={"chamnet": 3.0}).algorithm == "chamnet"


def test_a_single_algorithm_needs_no_choice() -> None:
    only: Any = {"morphnet": PROFILES["morphnet"]}
    choice = chosen(chooser(profiles=only))
    assert (choice.algorithm, choice.reason) == ("morphnet", "no other algorithm can be chosen")
    slow: Any = {"chamnet": PROFILES["chamnet"]}
    assert chosen(chooser(profiles=slow), prepared={}).algorithm == "chamnet"


#: Networks that share 1,200 steps for every two halvings; MorphNet loses the same in the same steps.
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
    """Return the edges of a path down to an eighth of the source."""
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


def test_goals_on_different_paths_do_not_share_training() -> None:
    assert algorithms(path_of(64, path=2)) == {"morphnet"}


def test_a_worse_algorithm_is_not_chosen_for_any_number_of_goals() -> None:
    assert algorithms(path_of(128), loss_per_halving=0.05) == {"morphnet"}


@pytest.mark.parametrize(
    ("rate", "step", "algorithm"),
    [(0.035, 1.0, "nested"), (0.035, 20.0, "morphnet"), (0.03, 20.0, "nested"), (0.04, 1.0, "morphnet")],
)
def test_a_slightly_worse_algorithm_has_to_be_much_faster(rate: float, step: float, algorithm: str) -> None:
    assert algorithms(path_of(128), loss_per_halving=rate, preparation_step=step) == {algorithm}


def test_training_is_not_shared_without_training_steps() -> None:
    untrained = PROFILES["morphnet"].model_copy(update={"adaptation": (0,) * 33, "tune_steps": 0})
    choices = chooser(profiles={"morphnet": untrained, "nested": SHARING})(path_of(64))
    assert {choice.algorithm for choice in choices} == {"morphnet"}


def test_training_is_not_shared_by_too_few_goals() -> None:
    """Limits on latency, without benchmark results, may leave too few goals."""
    for limited, chosen_ones in ((8, {"morphnet"}), (4, {"morphnet", "nested"})):
        some = [replace(edge, limits_latency=number < limited) for number, edge in enumerate(path_of(36))]
        assert algorithms(some) == chosen_ones


def test_goals_with_targets_get_algorithms_that_can_continue_training() -> None:
    assert algorithms(path_of(64, has_targets=True)) == {"morphnet"}
    assert algorithms(path_of(64, has_targets=True), tune_steps=10) == {"nested"}


def test_a_single_goal_joins_shared_training_unless_it_is_smaller() -> None:
    added = [replace(path_of(32)[15], path=33)]
    assert algorithms(added, {"nested": 3.0}) == {"nested"}
    assert algorithms(added, {"nested": 1.0}) == {"morphnet"}
    assert algorithms(added, {}) == {"morphnet"}


def test_an_added_goal_may_get_an_algorithm_that_can_do_without_its_preparation() -> None:
    added = [replace(path_of(32)[15], path=33)]
    profiles = {
        "morphnet": PROFILES["morphnet"].model_copy(
            update={"preparation": (100,) * 33, "preparation_pays_from": 4.0}
        ),
        "nested": SHARING,
    }
    (choice,) = chooser(profiles=profiles)(added, {"nested": 1.0})
    assert choice.algorithm == "morphnet"


def test_the_reason_states_the_cost_of_the_preparation() -> None:
    profiles = {"morphnet": PROFILES["morphnet"], "nested": SHARING}
    choice = chooser(profiles=profiles)(path_of(32))[0]
    assert "in 0 steps (after 2,400 for 32 goals together)" in choice.reason


def test_the_longest_path_through_each_node_counts() -> None:
    """The tree has the paths 0 - 1 - 2 - 5, 1 - 3 and 4."""
    parents = {0: None, 1: 0, 2: 1, 3: 1, 4: None}
    nodes = [
        NodePlan(index=index, parent=parent, budget={}, targets=(), seed=0, goals=("g",))
        for index, parent in parents.items()
    ]
    longest = longest_paths([*nodes, nodes[0].model_copy(update={"index": 5, "parent": 2})])
    assert {index: longest[index] for index in (*parents, 5)} == {0: 4, 1: 4, 2: 4, 3: 3, 4: 1, 5: 4}


def default_profile(name: str) -> AlgorithmProfile:
    """Return the profile of an algorithm with its default settings, for a small residual network."""
    algorithm = built_in()[name]
    module, _, function = algorithm.profile.partition(":")
    profile: AlgorithmProfile = getattr(import_module(module), function)(algorithm.params(), SOURCE)
    return profile


SOURCE = analyse(small_resnet())
DEFAULTS = {name: default_profile(name) for name in ("morphnet", "chamnet", "nested")}


@pytest.mark.parametrize(
    ("goals", "algorithm"), [(1, "morphnet"), (16, "morphnet"), (32, "nested"), (128, "nested")]
)
def test_with_default_settings_many_goals_share_their_training(goals: int, algorithm: str) -> None:
    """It is expected to lose nearly one point more on average, in at most a third of the time."""
    choices = chooser(profiles=DEFAULTS)(path_of(goals))
    assert {choice.algorithm for choice in choices} == {algorithm}
    if goals == 128:
        assert "averaged over 128 goals" in choices[0].reason
        assert "12.9 times the time" in choices[0].reason


#: Patterns of reasons: one algorithm on one edge, and two algorithms on average.
OF_ONE = re.compile(r"(\w+) (-?[\d.]+)% in ([\d.]+) times the time")
AVERAGED = re.compile(
    r" over \d+ goals? (-?[\d.]+)%, compared with [\w ]+ (-?[\d.]+)% in ([\d.]+) times the time"
)


def contradicts_choice(choice: Choice, sharing: str) -> bool:
    """Return whether the numbers in a reason favour another algorithm than the chosen one."""
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
    assert [choice.reason for choice in choices if contradicts_choice(choice, "nested")] == []
    limited = "averaged" in choices[0].reason
    assert {"averaged" in choice.reason for choice in choices[1:]} == {goals > 32}
    assert not limited


def test_a_reason_without_the_deciding_average_would_be_detected() -> None:
    """An earlier version printed only the loss of the edge, although averages had decided."""
    reason = (
        "expected to lose 0.8% of the source's accuracy at its parent's costs in 650 steps, compared with "
        "nested 1.0% in 0.1 times the time, based on benchmarks"
    )
    assert contradicts_choice(Choice("morphnet", reason, Estimate(0.008, 0.01)), "nested")


@pytest.mark.parametrize(
    ("nats", "source_steps", "halvings", "steps"),
    [
        (None, 599, 0.0, 600),
        (None, 600, 0.0, 0),
        (0.5, 599, 0.0, 600),
        (0.5, 600, 0.0, 0),
        (0.02, 0, 0.0, 0),
        (0.02, 600, 1.0, 700),  # 100 to cut, 600 to tune
        (0.02, 600, -1.0, 700),  # larger than the source
    ],
)
def test_no_steps_are_expected_if_nothing_is_cut_and_the_source_has_little_loss_or_has_learned(
    nats: float | None, source_steps: int, halvings: float, steps: int
) -> None:
    """The expected loss of accuracy and the choice are those with all steps."""
    able = Chooser(FEATURES, "own", PROFILES, ForecastHistory([], PROFILES), nats)
    edge = Edge(halvings=halvings, distance=abs(halvings), share=1.0, source_steps=source_steps)
    case = able.case(edge, "morphnet")
    assert case.steps == steps
    unlearned = replace(edge, source_steps=0)
    assert case.learned == chooser().case(unlearned, "morphnet").steps
    (choice,), (usual,) = able([edge]), chooser()([unlearned])
    assert (choice.algorithm, choice.lost) == (usual.algorithm, usual.lost)
    assert able.case(edge, "morphnet", rounds=2).steps == steps + 600
