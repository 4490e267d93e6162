"""All mistakes in a config are reported at once, each at its place, independently of each other."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.config.reading import read_batch

RIGHT: dict[str, Any] = {
    "id": "half",
    "model": "m.keras",
    "dataset": {
        "train": "train.npz",
        "test": "test.npz",
        "text": {"hashing": 100},
        "scale": {"factor": 2.0},
        "augment": {"crop": 1},
        "preparation": {"x": {"image": {}}},
    },
    "algorithm": {"name": "morphnet"},
    "adaptation_goal": {"FLOP": "0.5x", "latency": "5ms"},
    "hardware": {"name": "board", "compute_power": "10GFLOP/s", "memory_bandwidth": "8GB/s"},
    "quantization": {"precision": "none"},
    "compression": {"sparsity": 0.5},
}

#: Mistakes that are independent of each other: a place, its wrong value, and the reported place.
MISTAKES: list[tuple[str, Any, str]] = [
    ("id", "../x", "id"),
    ("model", "", "model"),
    ("modle", "m.keras", "modle"),
    ("dataset.train", 7, "dataset.train"),
    ("dataset.test", "", "dataset.test"),
    ("dataset.metric", "acuracy", "dataset.metric"),
    ("dataset.metrics", {"y": "exact_match"}, "dataset.metrics.y"),
    ("dataset.losses", {"y": "No Loss"}, "dataset.losses.y"),
    ("dataset.validation", 0.9, "dataset.validation"),
    ("dataset.text.hashing", 1, "dataset.text.hashing"),
    ("dataset.scale.factor", "much", "dataset.scale.factor"),
    ("dataset.augment.crop", -1, "dataset.augment.crop"),
    ("dataset.class_weights", "balancd", "dataset.class_weights"),
    ("dataset.labels", [1], "dataset.labels"),
    ("dataset.preparation.x.image.size", [0, 3], "dataset.preparation.x.image.size[0]"),
    ("algorithm.name", 3, "algorithm.name"),
    ("algorithm.config", [], "algorithm.config"),
    ("adaptation_goal.FLOP", "fast", "adaptation_goal.FLOP"),
    ("adaptation_goal.latency", "5 parsecs", "adaptation_goal.latency"),
    ("adaptation_goal.accuracy", "90", "adaptation_goal.accuracy"),
    ("hardware.compute_power", "strong", "hardware.compute_power"),
    ("hardware.name", "???", "hardware.name"),
    ("threads", "four", "threads"),
    ("quantization.precision", "int4", "quantization.precision"),
    ("quantization.inputs", "int9", "quantization.inputs"),
    ("compression.sparsity", 5, "compression.sparsity"),
    ("compression.sparcity", 0.5, "compression.sparcity"),
    ("tuning", {"trainable": "all"}, "tuning.trainable"),
    ("tuning", {"batch_size": 16, "micro_batch": 5}, "tuning.micro_batch"),
]

#: Values that are only wrong in combination; reported at the object that contains them.
TOGETHER: list[tuple[dict[str, Any], str]] = [
    ({"compression": {"sparsity": 0.5, "clusters": 4}}, "compression"),
    ({"branches": {}}, ""),  # conflicts with compression
    ({"exits": {}}, ""),  # conflicts with compression
    ({"tuning": {"trainable": "head"}}, ""),
    ({"hardware": {"name": None, "compute_power": "1GFLOP/s"}}, "hardware"),
    ({"dataset": {**RIGHT["dataset"], "text": {}}}, "dataset.text"),
]


def with_mistake(config: dict[str, Any], place: str, value: Any) -> None:
    *around, key = place.split(".")
    for name in around:
        config = config.setdefault(name, {})
    config[key] = value


def reported(config: dict[str, Any]) -> list[str]:
    problems = read_batch(json.dumps([config])).problems
    return sorted(problem.place.removeprefix("[0]").removeprefix(".") for problem in problems)


def test_a_valid_config_has_no_mistakes() -> None:
    assert reported(RIGHT) == []


@pytest.mark.parametrize(("place", "value", "expected"), MISTAKES)
def test_a_mistake_is_reported_at_its_place(place: str, value: Any, expected: str) -> None:
    config = deepcopy(RIGHT)
    with_mistake(config, place, value)
    assert reported(config) == [expected]


@given(mistakes=st.lists(st.sampled_from(MISTAKES), min_size=2, max_size=3, unique_by=lambda each: each[0]))
def test_independent_mistakes_are_all_reported(mistakes: list[tuple[str, Any, str]]) -> None:
    config = deepcopy(RIGHT)
    for place, value, _ in mistakes:
        with_mistake(config, place, value)
    # Without a known metric, nothing says whether a number is a share.
    kinds = {place for place, *_ in mistakes}
    expected = [
        place for given, _, place in mistakes
        if not (given == "adaptation_goal.accuracy" and kinds & {"dataset.metrics"})
    ]  # fmt: skip
    assert reported(config) == sorted(expected)


@pytest.mark.parametrize(("changes", "around"), TOGETHER)
@pytest.mark.parametrize("mistake", [("threads", "four", "threads"), ("model", 1, "model")])
def test_conflicting_settings_are_reported_together_with_other_mistakes(
    changes: dict[str, Any], around: str, mistake: tuple[str, Any, str]
) -> None:
    config = {**deepcopy(RIGHT), **changes}
    place, value, expected = mistake
    with_mistake(config, place, value)
    assert reported(config) == sorted([expected, around])


def test_all_conflicts_are_reported() -> None:
    wrong = {"quantization": "int8-qat", "branches": {}, "tuning": {"trainable": "head"}}
    assert reported({**RIGHT, **wrong}) == ["", "", ""]


def test_a_message_quotes_the_values_as_written() -> None:
    config = {**RIGHT, "hardware": {"compute_power": "fast"}}
    of_both = [each for each in read_batch(json.dumps([config])).problems if each.place == "[0].hardware"]
    assert [problem.value for problem in of_both] == ['{"compute_power": "fast"}']


def test_a_mistake_does_not_cause_further_errors() -> None:
    """Each of these mistakes removes a value that other checks need."""
    for part in ({"mean": "a", "std": [1]}, {"mean": [1], "std": 0}):
        config = {**RIGHT, "dataset": {**RIGHT["dataset"], "scale": part}}
        (place,) = reported(config)
        assert place in ("dataset.scale.mean", "dataset.scale.std")
    config = {**RIGHT, "dataset": {"unlabelled": 3}, "adaptation_goal": {"FLOP": "fast"}}
    assert reported(config) == ["adaptation_goal.FLOP", "dataset.unlabelled"]
    config = {**RIGHT, "adaptation_goal": {"accuracy": "much"}}
    assert reported(config) == ["adaptation_goal", "adaptation_goal.accuracy"]
    config = {
        **RIGHT,
        "dataset": {"train": "a.npz", "metric": 3},
        "compression": {"sparsity": 5, "clusters": 1},
    }
    assert reported(config) == [
        "compression",
        "compression.clusters",
        "compression.sparsity",
        "dataset.metric",
        "dataset.test",
    ]


@pytest.mark.parametrize("config", [3, None, "x", [], [3]])
def test_a_value_that_is_not_an_object_is_one_mistake(config: Any) -> None:
    assert len(read_batch(json.dumps([config])).problems) == 1
