"""Targets, and data with and without labels, in a config."""

import json

import pytest

from mistify.config.reading import parse_batch
from mistify.errors import MistifyError
from tests.mistify.config.entries import entry, parse, problems


def test_a_target_applies_to_all_outputs_or_to_named_outputs():
    for written, figures in [
        ("90%", {"": 0.9}),
        (2.5, {"": 2.5}),
        ({"price": 0.05, "kind": "0.9"}, {"price": 0.05, "kind": 0.9}),
        ({"": "0.9", "price": 0.05}, {"": 0.9, "price": 0.05}),
    ]:
        data = {"train": "train.npz", "test": "test.npz", "metric": "mae"}
        (config,) = parse(entry(dataset=data, adaptation_goal={"FLOP": "0.5x", "accuracy": written}))
        assert config.adaptation_goal.accuracy == figures
        again = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
        assert isinstance(again["adaptation_goal"]["accuracy"], dict) is isinstance(written, dict)
        assert parse(again) == (config,)


@pytest.mark.parametrize(
    ("given", "place", "value"),
    [
        ({}, "", "{}"),
        ("often", "", '"often"'),
        ({"price": -1, "kind": 0.9}, ".price", "-1"),
        ({"price of it": "much"}, '["price of it"]', '"much"'),
        (True, "", "true"),
    ],
)
def test_an_invalid_target_is_reported_at_its_place(given, place, value):
    (problem,) = problems(entry(adaptation_goal={"FLOP": "0.5x", "accuracy": given}))
    assert (problem.place, problem.value) == (f"[0].adaptation_goal.accuracy{place}", value)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"metric": "auc"},
            '.metric: got "auc"; expected one of accuracy, agreement, balanced_accuracy, balanced_agreement',
        ),
        (
            {"metrics": {"box": "exact_match"}},
            '.metrics.box: got "exact_match"; expected one of accuracy, agreement',
        ),
        (
            {"validation": 0.9},
            ".validation: got 0.9; expected a share of the training data above 0 and up to 0.5,",
        ),
        ({"validation": "generated:9"}, '.validation: got "generated:9"; expected a share of the training'),
        ({"validation": True}, ".validation: got true; expected a share of the training data"),
        ({"augment": {"flip": True, "rotate": 3}}, '.augment.rotate: got the key "rotate"'),
        ({"augment": {"brightness": 1}}, ".augment.brightness: got 1; expected a share below 1"),
        ({"scale": {"mean": [1, 2], "std": [1]}}, '"mean" and "std" of one length'),
        ({"scale": {"factor": 2, "mean": [1], "std": [1]}}, '"factor" and "offset", or "mean" and "std"'),
        ({"class_weights": "equal"}, ".class_weights"),
        ({"text": {}}, 'either "vocabulary" or "hashing"'),
        ({"unlabelled": "generated:9"}, '.unlabelled: got "generated:9"; expected inputs of your own'),
        (
            {"unlabelled": "c", "train": "generated:9"},
            '.train: got "generated:9"; expected no generated data',
        ),
        ({"train": None}, '.train: got nothing; expected the name of the training data, or of "unlabelled"'),
        ({"unlabelled": "c", "test": None}, ".test: got nothing; expected the name of the test data"),
        (
            {"unlabelled": "c", "train": None, "test": None, "validation": "d"},
            "expected a share of the unlabelled inputs if there are no test data",
        ),
    ],
)
def test_wrong_settings_of_the_data_are_reported(settings, text):
    reported = problems(entry(dataset={"train": "a", "test": "b", **settings}))
    assert any(text in str(problem) for problem in reported), reported


@pytest.mark.parametrize(
    "dataset",
    [
        {"unlabelled": "photos"},
        {"unlabelled": "photos", "test": "b"},
        {"unlabelled": "photos", "train": "a", "test": "b"},
    ],
)
def test_unlabelled_inputs_replace_or_supplement_other_data(dataset):
    (config,) = parse_batch(json.dumps(entry(dataset=dataset)))
    named = {part: getattr(config.dataset, part) for part in ("unlabelled", "train", "test")}
    assert {part: name for part, name in named.items() if name} == dataset


@pytest.mark.parametrize(
    ("dataset", "allowed"),
    [
        ({"unlabelled": "photos", "test": "b"}, False),
        ({"train": "generated:9", "test": "b"}, False),
        ({"unlabelled": "photos", "test": "b", "validation": "c"}, True),
        ({"unlabelled": "photos"}, True),
        ({"train": "generated:9", "test": "generated:9"}, True),
    ],
)
def test_an_accuracy_target_requires_labels_for_validation(dataset, allowed):
    text = json.dumps(entry(dataset=dataset, adaptation_goal={"FLOP": "0.5x", "accuracy": 0.8}))
    if allowed:
        assert parse_batch(text)
        return
    with pytest.raises(MistifyError) as caught:
        parse_batch(text)
    assert 'name a file with labels as "validation"' in str(caught.value.problems[0])
