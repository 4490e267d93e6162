"""The algorithm: its settings, and a preparation that is interrupted."""

import keras
import pytest

from executors.algorithms.crowdhmt.executor import CrowdHmtExecutor
from executors.algorithms.crowdhmt.params import CrowdHmtParams
from executors.contract.assignment import Assignment
from executors.contract.params import parse_params
from executors.contract.preparation import PreparationProgress
from executors.structure import analyse
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.costs.budget import FLOPS
from mistify.errors import ErrorCode, MistifyError
from tests.executors.algorithms.adaptivenet.conftest import deep_resnet

PARAMS = CrowdHmtParams(
    merge=(), shrink=(), variants={"ghost": (0.5,), "low-rank": (0.5,)}, distil_steps=8, path_steps=8
)


@pytest.fixture(scope="module")
def assignment(digits):
    model = deep_resnet()
    setup = TrainingSetup(*digits, None, TrainingParams(batch_size=32))
    return Assignment(model, {FLOPS: 1.0}, (), setup, 3, analyse(model))


def test_families_can_be_chosen():
    assert set(CrowdHmtParams().variants) == {"depth", "kernel", "low-rank", "separable"}
    assert parse_params(CrowdHmtParams, {"variants": {"ghost": [0.5]}}).variants == {"ghost": (0.5,)}


@pytest.mark.parametrize(
    ("family", "amount", "expected"),
    [
        ("depth", 2, "an odd number of positions"),
        ("fire", 1, "a share of the input channels"),
        ("ghost", 0.4, "one divided by a whole number"),
        ("kernel", 1.5, "a whole number of positions"),
        ("low-rank", 1, "a share of multiply-adds"),
        ("noise", 1, "a share of the channels"),
        ("resolution", 0.25, "0.5, half the resolution"),
        ("separable", 0, "a whole number of kernels"),
    ],
)
def test_amounts_without_meaning_are_refused(assignment, family, amount, expected):
    params = parse_params(CrowdHmtParams, {"variants": {family: [amount]}})
    with pytest.raises(
        MistifyError, match=rf"variants\.{family}.*got {amount:g}; expected {expected}"
    ) as caught:
        CrowdHmtExecutor(params).prepare(assignment, PreparationProgress())
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("amount", [float("inf"), float("nan"), "half"])
def test_amounts_that_are_no_numbers_are_refused_in_the_config(amount):
    with pytest.raises(MistifyError, match=r'variants\["low-rank"\]\[0\]') as caught:
        parse_params(CrowdHmtParams, {"variants": {"low-rank": [amount]}})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_unknown_families_are_refused_with_the_known_ones():
    with pytest.raises(MistifyError, match=r"low-rnk.*depth, fire, ghost, kernel, low-rank, merge, noise"):
        parse_params(CrowdHmtParams, {"variants": {"low-rnk": [0.5]}})


@pytest.mark.slow
def test_an_interrupted_preparation_resumes(assignment):
    class Stopped(PreparationProgress):
        def keep(self, name, content):
            super().keep(name, content)
            if self.step == 5:
                raise KeyboardInterrupt

    whole, stopped, resumed = PreparationProgress(), Stopped(), PreparationProgress()
    expected = prepared(assignment, whole)
    with pytest.raises(KeyboardInterrupt):
        prepared(assignment, stopped)
    resumed._parts = dict(stopped._parts)
    assert prepared(assignment, resumed) == expected


def prepared(assignment, progress):
    keras.utils.set_random_seed(3)
    return CrowdHmtExecutor(PARAMS).prepare(assignment, progress)
