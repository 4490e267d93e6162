"""The short form expands to the goals of Figure 3, and problems are reported at their places in it."""

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.config.reading import parse_batch, read_batch
from mistify.errors import ErrorCode, MistifyError, Problem
from tests.support.paths import REPOSITORY

DATASET = {"train": "train.npz", "test": "test.npz"}
COMMON = {"model": "net.keras", "dataset": DATASET}
HARDWARE = ["jetson-nano", {"name": "my-board", "compute_power": 2, "memory_bandwidth": 3}]
LATENCIES = ["30ms", "60ms", 90]


def problems(file: Any) -> dict[str, Problem]:
    with pytest.raises(MistifyError) as caught:
        parse_batch(json.dumps(file))
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert len(set(caught.value.problems)) == len(caught.value.problems)
    return {problem.place: problem for problem in caught.value.problems}


def test_the_short_form_of_a_file_equals_the_list_of_all_goals() -> None:
    short = {
        "defaults": {**COMMON, "id": "{hardware}-{latency}", "adaptation_goal": {"accuracy": "0.8"}},
        "goals": [
            {"hardware": HARDWARE, "adaptation_goal": {"latency": LATENCIES}},
            {"id": "small", "adaptation_goal": {"memory": "1MB"}, "dataset": {"test": "other.npz"}},
        ],
    }
    names = {"jetson-nano": "jetson-nano", "my-board": "my-board"}
    long = [
        {
            **COMMON,
            "id": f"{names[hardware if isinstance(hardware, str) else hardware['name']]}-{latency}",
            "hardware": hardware,
            "adaptation_goal": {"latency": latency, "accuracy": "0.8"},
        }
        for hardware, latency in product(HARDWARE, LATENCIES)
    ]
    long.append(
        {
            **COMMON,
            "id": "small",
            "adaptation_goal": {"memory": "1MB", "accuracy": "0.8"},
            "dataset": {**DATASET, "test": "other.npz"},
        }
    )
    assert parse_batch(json.dumps(short)) == parse_batch(json.dumps(long))


def test_the_fleet_of_the_documentation_has_thirty_goals() -> None:
    text = (REPOSITORY / "configs/fleet.json").read_text()
    configs = parse_batch(text)
    assert len({config.id for config in configs}) == 30
    assert {config.id for config in configs} >= {"jetson-nano-0.7x", "camera-2026-0.35x"}
    assert all(config.adaptation_goal.accuracy == {"": 0.9} for config in configs)
    assert text in (REPOSITORY / "docs/config.md").read_text()


def test_goals_of_a_list_are_named_by_the_values_that_differ() -> None:
    goal = {**COMMON, "id": "net", "adaptation_goal": {"FLOP": ["0.5x", "0.25 x"], "size": "0.9x"}}
    assert [config.id for config in parse_batch(json.dumps([goal]))] == ["net-0.5x", "net-0.25-x"]
    assert [config.id for config in parse_batch(json.dumps(goal))] == ["net-0.5x", "net-0.25-x"]


def test_hardware_without_a_name_is_numbered() -> None:
    boards = [{"compute_power": power, "memory_bandwidth": 3} for power in (1, 2)]
    goal = {**COMMON, "hardware": boards, "adaptation_goal": {"latency": ["1ms", "2ms"]}}
    for pattern, ids in (
        ("net", ["net-1-1ms", "net-1-2ms", "net-2-1ms", "net-2-2ms"]),
        ("{latency}.{hardware}", ["1ms.1", "2ms.1", "1ms.2", "2ms.2"]),
    ):
        assert [config.id for config in parse_batch(json.dumps([{**goal, "id": pattern}]))] == ids


def test_an_invalid_limit_is_reported_at_its_place() -> None:
    goal = {**COMMON, "id": "net", "adaptation_goal": {"FLOP": ["1G", {"a": 1}]}}
    assert list(problems([goal])) == ["[0].adaptation_goal.FLOP[1]"]


def test_hardware_and_algorithm_of_a_goal_replace_the_defaults_completely() -> None:
    file = {
        "defaults": {
            **COMMON,
            "id": "{FLOP}",
            "algorithm": {"name": "morphnet", "config": {"cuts": 3}},
            "hardware": HARDWARE[1],
        },
        "goals": [
            {"algorithm": {"name": "chamnet"}, "hardware": {"name": "pi"}, "adaptation_goal": {"FLOP": 5}}
        ],
    }
    (config,) = parse_batch(json.dumps(file))
    assert (config.id, config.algorithm.name, config.algorithm.config) == ("5", "chamnet", {})
    assert (config.device, config.profile) == ("pi", None)


def test_problems_are_reported_at_their_places_in_the_file() -> None:
    file = {
        "defaults": {"model": "net.keras", "id": "{hardware}-{FLOP}", "dataset": {"train": "a", "tset": "b"}},
        "goals": [
            {
                "hardware": ["jetson-nano", {"name": "x", "compute_power": -1}],
                "adaptation_goal": {"FLOP": "1G"},
            },
            {"hardware": "jetson-nano", "adaptation_goal": {"FLOP": ["1G", "-2G", "lots"]}, "threads": 0},
        ],
    }
    by_place = problems(file)
    assert set(by_place) == {
        "defaults.dataset.tset",
        "defaults.dataset.test",
        "goals[0].hardware[1].compute_power",
        "goals[1].adaptation_goal.FLOP[1]",
        "goals[1].adaptation_goal.FLOP[2]",
        "goals[1].threads",
        "defaults.id",
    }
    assert "different from that of goals[0]" in by_place["defaults.id"].expected


@pytest.mark.parametrize(
    ("file", "place", "advice"),
    [
        ({"default": {}, "goals": []}, "default", 'did you mean "defaults"?'),
        ({"defaults": [], "goals": [{}]}, "defaults", "an object"),
        ({"goals": {}}, "goals", "a list of goals"),
        ({"defaults": {}}, "the list", "add a config"),
        ({"goals": [{**COMMON, "id": "{speed}", "adaptation_goal": {"FLOP": 5}}]}, "goals[0].id", "FLOP"),
        ([{**COMMON, "id": "a", "hardware": [], "adaptation_goal": {"FLOP": 5}}], "[0].hardware", "add one"),
    ],
)
def test_an_invalid_file_is_refused(file: Any, place: str, advice: str) -> None:
    assert advice in str(problems(file)[place])


def test_goals_expanded_from_one_list_need_different_ids() -> None:
    goal = {**COMMON, "id": "{hardware}", "hardware": HARDWARE, "adaptation_goal": {"FLOP": [5, 6]}}
    assert "such as" in problems([goal])["[0].id"].fix


def test_an_id_that_is_far_too_long_is_reported_as_it_was_written() -> None:
    pattern = "{FLOP}" * 100
    (problem,) = problems([{**COMMON, "id": pattern, "adaptation_goal": {"FLOP": ["1G", "2G"]}}]).values()
    assert (problem.place, problem.value[:13]) == ("[0].id", '"{FLOP}{FLOP}')
    names = ["a" * 300, "b" * 300]
    by_place = problems(
        [{**COMMON, "id": "{hardware}", "hardware": names, "adaptation_goal": {"FLOP": "1G"}}]
    )
    assert by_place.keys() == {"[0].id", "[0].hardware[0]", "[0].hardware[1]"}


def test_a_mistake_in_defaults_is_reported_there_whatever_its_key() -> None:
    file = {
        "defaults": {**COMMON, "my [own] key.": 1},
        "goals": [{"id": "a", "adaptation_goal": {"FLOP": 5}}],
    }
    assert problems(file).keys() == {'defaults["my [own] key."]'}


def test_lists_that_make_too_many_goals_are_not_expanded() -> None:
    many = list(range(1, 1001))
    goal = {**COMMON, "id": "a", "adaptation_goal": {"FLOP": many, "size": many, "memory": many}}
    assert "1,000,000,000 goals" in str(problems([goal])["the lists"])
    counts: list[int] = []
    with pytest.raises(MistifyError):
        read_batch(json.dumps([goal, goal]), check_count=counts.append).checked()
    assert counts == [2_000_000_000]


def test_equal_problems_from_the_server_are_reported_once_at_their_place_in_the_file() -> None:
    text = json.dumps(
        {
            "defaults": {**COMMON, "id": "{FLOP}"},
            "goals": [{"adaptation_goal": {"FLOP": ["1G", "2G"]}, "threads": 2}],
        }
    )
    of_server = [
        *(Problem(f"[{index}].model", '"net.keras"', "a model", "check the path") for index in (0, 1)),
        Problem("[1].adaptation_goal.FLOP", "2G", "more", "ask for more"),
        Problem("[7].threads", "2", "fewer", "ask for fewer"),
    ]
    with pytest.raises(MistifyError) as caught, read_batch(text).problems_at_their_places():
        raise MistifyError(ErrorCode.INVALID_MODEL, "wrong", of_server)
    assert caught.value.code is ErrorCode.INVALID_MODEL
    places = [problem.place for problem in caught.value.problems]
    assert places == ["defaults.model", "goals[0].adaptation_goal.FLOP[1]", "[7].threads"]


@given(st.integers(1, 4), st.integers(1, 4))
def test_lists_expand_to_all_combinations(boards: int, limits: int) -> None:
    goal = {
        **COMMON,
        "id": "{hardware}.{memory}",
        "hardware": ["jetson-nano", "host", "xavier", "pi"][:boards]
        if boards == 1
        else ["jetson-nano"] * boards,
        "adaptation_goal": {"memory": [f"{limit}MB" for limit in range(1, limits + 1)]},
    }
    if boards == 1:
        assert len(parse_batch(json.dumps(goal))) == limits
    else:  # the same hardware twice
        assert "[0].id" in problems([goal])
