"""A time for all goals of a config."""

import json

import pytest

from mistify.config.reading import parse_batch
from mistify.config.timing import with_time

GOAL = {
    "id": "a",
    "model": "m",
    "dataset": {"train": "a.npz", "test": "b.npz"},
    "adaptation_goal": {"FLOP": "0.5x"},
}
AUTO = {"name": "auto", "config": {"time": "10min"}}


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ({}, AUTO),
        ({"algorithm": "morphnet"}, {"name": "morphnet", "config": {"time": "10min"}}),
        (
            {"algorithm": {"name": "morphnet", "config": {"batch_size": 8, "time": 5}}},
            {"name": "morphnet", "config": {"batch_size": 8, "time": "10min"}},
        ),
    ],
)
def test_every_goal_gets_the_time_in_each_form_of_a_config(algorithm, expected) -> None:
    other = {**GOAL, "id": "b", "algorithm": "uniform"}
    defaults = {key: value for key, value in {**GOAL, **algorithm}.items() if key != "id"}
    forms = (
        [{**GOAL, **algorithm}, other],
        {"goals": [{**GOAL, **algorithm}, other]},
        {"defaults": defaults, "goals": [{"id": "a"}, {"id": "b", "algorithm": "uniform"}]},
    )
    for form in forms:
        first, second = parse_batch(with_time(json.dumps(form), "10min"))
        assert first.algorithm.model_dump() == expected
        assert second.algorithm.model_dump() == {"name": "uniform", "config": {"time": "10min"}}
    (alone,) = parse_batch(with_time(json.dumps({**GOAL, **algorithm}), "10min"))
    assert alone.algorithm.model_dump() == expected


def test_comments_are_allowed_and_other_values_stay() -> None:
    text = with_time(f"// a comment\n[{json.dumps(GOAL)},]", "90")
    assert json.loads(text) == [{**GOAL, "algorithm": {"config": {"time": "90"}}}]


@pytest.mark.parametrize("text", ["[{", '{"a": 1, "a": 2}'])
def test_a_broken_config_is_left_to_the_checks(text) -> None:
    assert with_time(text, "10min") == text


@pytest.mark.parametrize("goal", [5, {"algorithm": 5}, {"algorithm": {"config": 5}}])
def test_a_wrong_goal_is_left_to_the_checks(goal) -> None:
    assert json.loads(with_time(json.dumps([goal]), "10min")) == [goal]
    assert json.loads(with_time(json.dumps({"goals": [goal]}), "10min"))["goals"] == [goal]
