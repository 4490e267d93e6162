"""The `tuning` of a config."""

import pytest
from pydantic import ValidationError

from mistify.config.package.tuning import TuningConfig
from mistify.parsing.validation import problems_of


@pytest.mark.parametrize("micro_batch", [None, 1, 8, 32])
def test_micro_batches_that_divide_the_batch_are_accepted(micro_batch):
    assert TuningConfig(micro_batch=micro_batch).micro_batch == micro_batch


@pytest.mark.parametrize("micro_batch", [5, 64])
def test_micro_batches_that_do_not_divide_the_batch_are_reported_at_their_place(micro_batch):
    with pytest.raises(ValidationError) as raised:
        TuningConfig(micro_batch=micro_batch)
    (problem,) = problems_of(raised.value, TuningConfig, "[0].tuning")
    assert problem.place == "[0].tuning.micro_batch"
    assert problem.value == str(micro_batch)
    assert "32" in problem.expected
