"""The `branches` of a config."""

import pytest
from pydantic import ValidationError

from mistify.config.package.branches import BranchesConfig
from mistify.config.reading import parse_batch
from mistify.errors import MistifyError
from mistify.parsing.validation import problems_of

CONFIG = """{{"id": "a", "model": "m", "dataset": {{"train": "t", "test": "u"}},
  "adaptation_goal": {{"FLOP": "0.5x"}}, "branches": {}}}"""


@pytest.mark.parametrize(
    ("inputs", "shares"),
    [
        ({}, (1 / 3, 1, 3)),
        ({"count": 5}, (1 / 3, 3**-0.5, 1, 3**0.5, 3)),
        ({"count": 2, "from": "0.5x", "to": "1x"}, (0.5, 1)),
        ({"count": 4}, (1 / 3, 1, 3 ** (1 / 3), 3)),
        ({"count": 3, "from": 0.25, "to": 1}, (0.25, 0.5, 1)),
    ],
)
def test_default_shares_are_evenly_spaced_on_a_logarithmic_scale(inputs, shares):
    actual = BranchesConfig.model_validate(inputs).shares
    assert actual == pytest.approx(shares)
    assert 1.0 in actual


@pytest.mark.parametrize(
    ("inputs", "reported"),
    [
        ({"from": "1/0x"}, "write a fraction or a number followed by x"),
        ({"to": "1e99999999x"}, "write a fraction or a number followed by x"),
        ({"from": "a third"}, "write a fraction or a number followed by x"),
        ({"to": True}, "write a fraction or a number followed by x"),
        ({"to": "9" * 400}, "write a fraction or a number followed by x"),
        ({"to": "100x"}, "choose one in that range"),
        ({"from": "2x", "to": "3x"}, 'for example "from": "1/3x", "to": "3x"'),
        ({"from": "1x", "to": "1x"}, 'for example "from": "1/3x", "to": "3x"'),
        ({"count": 1}, "for example 3"),
        ({"form": "1/3x"}, 'did you mean "from"?'),
        ({"saved_model": "zip"}, "expected true or false"),
    ],
)
def test_unusable_branches_are_refused_with_a_fix(inputs, reported):
    with pytest.raises(ValidationError) as error:
        BranchesConfig.model_validate(inputs)
    assert reported in str(problems_of(error.value, BranchesConfig)[0])


def test_branches_survive_serialization():
    config = BranchesConfig.model_validate({"count": 5, "from": "1/3x", "to": "2.5x", "saved_model": True})
    assert BranchesConfig.model_validate(config.model_dump(mode="json", by_alias=True)) == config


@pytest.mark.parametrize(
    ("quantization", "fix"),
    [
        ('"int8-qat"', 'ask for the precision "int8"'),
        ('{"precision": "int8", "inputs": "int8"}', 'leave "inputs" out'),
    ],
)
def test_precisions_that_branches_cannot_have_are_refused(quantization, fix):
    with pytest.raises(MistifyError) as error:
        parse_batch(CONFIG.format(f'{{}}, "quantization": {quantization}'))
    assert fix in str(error.value)
    (config,) = parse_batch(CONFIG.format('{}, "quantization": "int8"'))
    assert config.branches == BranchesConfig()


def test_mistakes_in_branches_are_reported_at_their_places():
    with pytest.raises(MistifyError) as error:
        parse_batch(CONFIG.format('{"from": "1/30x"}'))
    assert [problem.place for problem in error.value.problems] == ["[0].branches.from"]
    assert parse_batch(CONFIG.format("{}"))[0].branches == BranchesConfig()
