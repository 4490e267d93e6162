"""The setting `tuning`, and writing weights to their places in a network."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mistify.config.package.tuning import TuningConfig
from mistify.config.reading import parse_batch
from mistify.errors import MistifyError
from mistify.jobs.job import Goal, Job, JobState
from mistify.jobs.package_spec import PackageSpec
from mistify.package.training import (
    OutputEncoding,
    TrainedWeight,
    Training,
    WeightPlace,
    weights_in,
    with_weights,
)
from mistify.wire import porting


def goal(**settings):
    given = {
        "id": "a",
        "model": "m",
        "dataset": {"train": "a", "test": "b"},
        "adaptation_goal": {"FLOP": "0.5x"},
        **settings,
    }
    return parse_batch(json.dumps(given))[0]


def config(**tuning):
    return goal(tuning=tuning).tuning


@pytest.mark.parametrize("part", ["none", "network", "head", "biases", 3])
def test_a_config_selects_the_trained_part(part):
    assert config(trainable=part, optimizer="adam", batch_size=8) == TuningConfig(
        trainable=part, optimizer="adam", batch_size=8
    )


def test_nothing_is_trained_by_default():
    assert config().trainable == "none"


@pytest.mark.parametrize("part", ["heads", 0, -1, True, 1.5, None, ["head"]])
def test_unknown_parts_are_refused(part):
    with pytest.raises(MistifyError) as caught:
        config(trainable=part)
    (problem,) = caught.value.problems
    assert problem.place == "[0].tuning.trainable"
    assert "last blocks" in problem.expected


@pytest.mark.parametrize(
    ("other", "given"),
    [
        ({"quantization": "int8"}, '"quantization": "int8"'),
        ({"branches": {"count": 3}}, '"branches": 3'),
        ({"compression": {"sparsity": 0.5}}, '"compression": "50% zeros"'),
    ],
)
def test_settings_that_rule_out_tuning_are_refused(other, given):
    """Otherwise `train.tflite` would be missing without notice, which only the device would find out."""
    with pytest.raises(MistifyError) as caught:
        goal(tuning={"trainable": "head"}, **other)
    (problem,) = caught.value.problems
    assert (problem.place, problem.value) == ("[0]", f'{{"tuning": "head", {given}}}')
    assert problem.expected.startswith("float32 without branches or compression")
    assert problem.fix == f'leave out "tuning", or "{next(iter(other))}"'
    assert goal(tuning={"trainable": "none"}, **other)
    assert goal(tuning={"trainable": "head"}, quantization="auto")


def test_unknown_and_invalid_settings_are_refused():
    with pytest.raises(MistifyError) as caught:
        config(optimizer="lion", batch_size=0, epochs=3)
    assert {problem.place for problem in caught.value.problems} == {
        "[0].tuning.optimizer",
        "[0].tuning.batch_size",
        "[0].tuning.epochs",
    }


def job_with(tuning):
    return Job("job-1", JobState.RUNNING, (Goal("a", 0, PackageSpec({}, tuning=tuning)),), 0)


@pytest.mark.parametrize("part", ["none", "network", "head", "biases", 3])
def test_tuning_survives_the_wire(part):
    job = job_with(TuningConfig(trainable=part, optimizer="adam", batch_size=8))
    assert porting.job_from_proto(porting.job_to_proto(job)) == job


def test_unknown_tuning_of_a_newer_server_is_an_error():
    message = porting.job_to_proto(job_with(TuningConfig(trainable="head")))
    message.goals[0].spec.tuning.optimizer = "lion"
    with pytest.raises(MistifyError, match="tuning"):
        porting.job_from_proto(message)


@given(
    weight=arrays.arrays(np.float32, arrays.array_shapes(max_dims=4, max_side=5), elements=st.just(1.0)),
    data=st.data(),
)
def test_a_weight_is_written_only_to_its_place(weight, data):
    weight = np.arange(1, 1 + weight.size, dtype=np.float32).reshape(weight.shape)
    axes = tuple(data.draw(st.permutations(range(weight.ndim))))
    start = tuple(data.draw(st.integers(0, size - 1)) for size in weight.shape)
    stop = tuple(
        data.draw(st.integers(first + 1, size)) for first, size in zip(start, weight.shape, strict=True)
    )
    place = WeightPlace(offset=8, start=start, stop=stop, axes=axes, factor=2.0)
    network = bytearray(8 + 4 * weight.size + 8)
    place.put(weight, network)
    expected = 2 * weight[tuple(map(slice, start, stop))].transpose(axes)
    actual = np.frombuffer(bytes(network), "<f4")
    np.testing.assert_array_equal(actual[2 : 2 + expected.size], expected.ravel())
    assert not actual[:2].any()
    assert not actual[2 + expected.size :].any()
    read = np.zeros_like(weight)
    place.get(bytes(network), read)
    read[tuple(map(slice, start, stop))] -= weight[tuple(map(slice, start, stop))]
    assert not read.any()


PLACE = WeightPlace(offset=4, start=(0,), stop=(2,), axes=(0,))
RECORD = Training(
    trainable="network",
    optimizer="sgd",
    batch_size=4,
    adapts=False,
    targets={},
    teachers={},
    kinds={},
    weights=(TrainedWeight(name="a/bias", tensor="weight_0", shape=(2,), places=(PLACE,)),),
)


def test_other_weights_are_not_changed():
    network = bytes(range(16))
    assert with_weights(network, RECORD, {}) == network
    changed = with_weights(network, RECORD, {"a/bias": [1.0, 2.0]})
    assert changed[:4] + changed[12:] == network[:4] + network[12:]
    assert np.frombuffer(changed[4:12], "<f4").tolist() == [1.0, 2.0]


def test_written_weights_are_read_back():
    changed = with_weights(bytes(16), RECORD, {"a/bias": [1.0, 2.0]})
    actual = weights_in(changed, RECORD)
    assert {name: values.tolist() for name, values in actual.items()} == {"a/bias": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("kind", "output", "expected"),
    [
        (OutputEncoding.SOFTMAX, [[0.25, 0.75]], [[0.25, 0.75]]),
        (OutputEncoding.LOGITS, [[0.0, np.log(3)], [1000.0, 1000.0]], [[0.25, 0.75], [0.5, 0.5]]),
        (OutputEncoding.SIGMOID, [0.25], [0.25]),
        (OutputEncoding.LOGIT, [-np.log(3), 1000.0], [0.25, 1.0]),
        (OutputEncoding.FIGURES, [-3.0], [-3.0]),
    ],
)
def test_outputs_of_a_teacher_become_probabilities_or_numbers(kind, output, expected):
    np.testing.assert_allclose(kind.predictions(output), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("weights", "error"),
    [({"b": [1.0, 2.0]}, KeyError), ({"a/bias": [1.0]}, ValueError), ({"a/bias": [1.0, np.inf]}, ValueError)],
)
def test_weights_with_wrong_names_or_shapes_are_refused(weights, error):
    with pytest.raises(error):
        with_weights(bytes(16), RECORD, weights)
