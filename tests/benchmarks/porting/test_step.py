"""The baselines of `step`."""

from contextlib import AbstractContextManager, nullcontext

import keras
import pytest

from benchmarks.porting.step import SOURCE, batch_norms_of_keras, multiply_adds, trained
from benchmarks.tuning.step import resnet8
from executors.training import evaluation
from executors.training.batch_norm import quick_batch_norms


def test_the_upper_bound_covers_the_multiply_adds_of_all_layers():
    first = 32 * 32 * 9 * 3 * 16
    stages = [
        32 * 32 * (9 * 16 * 16 + 9 * 16 * 16),
        16 * 16 * (9 * 16 * 32 + 9 * 32 * 32 + 16 * 32),
        8 * 8 * (9 * 32 * 64 + 9 * 64 * 64 + 32 * 64),
    ]
    assert multiply_adds(resnet8(SOURCE)) == first + sum(stages) + 64 * 10


@pytest.mark.parametrize("of_keras", [False, True], ids=["quick", "of Keras"])
def test_one_side_has_fast_batch_norms_and_the_other_those_of_keras(
    of_keras: bool, monkeypatch: pytest.MonkeyPatch
):
    traced = []

    def recording(model: keras.Model) -> AbstractContextManager[None]:
        traced.append(model)
        return quick_batch_norms(model)

    monkeypatch.setattr(evaluation, "quick_batch_norms", recording)
    with batch_norms_of_keras() if of_keras else nullcontext():
        trained((8, 8, 8))
    assert bool(traced) != of_keras
