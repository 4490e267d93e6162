"""The `exits` of a config."""

import pytest
from pydantic import ValidationError

from mistify.config.package.exits import ExitsConfig
from mistify.config.reading import parse_batch
from mistify.errors import MistifyError
from mistify.parsing.validation import problems_of

CONFIG = """{{"id": "a", "model": "m", "dataset": {{"train": "t", "test": "u"}},
  "adaptation_goal": {{"FLOP": "0.5x"}}, "exits": {}}}"""


@pytest.mark.parametrize(
    ("inputs", "loss"),
    [({}, (0.005, 0.01)), ({"loss": [0.02]}, (0.02,)), ({"loss": ["1%", "0.5%"]}, (0.01, 0.005))],
)
def test_losses_are_shares_of_examples(inputs, loss):
    assert ExitsConfig.model_validate(inputs).loss == pytest.approx(loss)


@pytest.mark.parametrize(
    ("inputs", "reported"),
    [
        ({"loss": [0]}, "loss of accuracy above 0 and up to 0.2"),
        ({"loss": [-0.01]}, "loss of accuracy above 0 and up to 0.2"),
        ({"loss": [1]}, "loss of accuracy above 0 and up to 0.2"),
        ({"loss": ["NaN"]}, "loss of accuracy above 0 and up to 0.2"),
        ({"loss": [True]}, "loss of accuracy above 0 and up to 0.2"),
        ({"loss": ["a point"]}, "loss of accuracy above 0 and up to 0.2"),
        ({"loss": []}, "a list of one to four losses of accuracy"),
        ({"loss": [0.01, 0.02, 0.03, 0.04, 0.05]}, "a list of one to four losses of accuracy"),
        ({"loss": 0.01}, "a list of one to four losses of accuracy"),
        ({"loss": [0.01, "1%"]}, "name each once"),
        ({"losses": [0.01]}, 'did you mean "loss"?'),
        ({"after": "add_3"}, "a list of names of layers"),
        ({"after": [3]}, "expected a text"),
    ],
)
def test_unusable_exits_are_refused_with_a_fix(inputs, reported):
    with pytest.raises(ValidationError) as error:
        ExitsConfig.model_validate(inputs)
    assert reported in str(problems_of(error.value, ExitsConfig)[0])


def test_exits_survive_serialization():
    config = ExitsConfig.model_validate({"loss": [0.005, "3%"], "after": ["add_3"]})
    assert ExitsConfig.model_validate(config.model_dump(mode="json", by_alias=True)) == config


@pytest.mark.parametrize(
    ("beside", "reported"),
    [
        ('"quantization": "int8-qat"', 'leave out "exits", or "quantization"'),
        ('"quantization": {"precision": "int8", "inputs": "int8"}', 'leave out "exits", or "inputs"'),
        ('"compression": {"sparsity": 0.5}', 'leave out "exits", or "compression"'),
    ],
)
def test_settings_that_exits_exclude_are_named(beside, reported):
    with pytest.raises(MistifyError) as error:
        parse_batch(CONFIG.format("{}, " + beside))
    (problem,) = error.value.problems
    assert reported in str(problem)
    assert "losses of 0.5% and 1%" in str(problem)


@pytest.mark.parametrize("quantization", ["none", "float16", "dynamic", "int8"])
def test_other_precisions_have_exits(quantization):
    (config,) = parse_batch(CONFIG.format('{}, "quantization": ' + f'"{quantization}"'))
    assert config.exits == ExitsConfig()
