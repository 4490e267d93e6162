"""ResNet-8 in PyTorch equals the Keras network that it was translated from."""

import keras
import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra: pip install -e '.[peers]'")

from benchmarks.porting import torch_resnet8
from executors.data import Dataset
from executors.structure import analyse
from executors.structure.signature import signature_of
from executors.training import evaluation
from tests.benchmarks.porting.networks import resnet8

layers = keras.layers


@pytest.fixture(scope="module")
def model():
    return resnet8()


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (300, 32, 32, 3), np.uint8)
    signature = signature_of(resnet8())
    names = signature.inputs[0].name, signature.outputs[0].name
    return Dataset({names[0]: images}, {names[1]: rng.integers(0, 10, 300)})


def images_of(data):
    return torch_resnet8.tensors(torch_resnet8.arrays_of(data)[0])


def keras_outputs(model, data):
    (outputs,) = evaluation.Evaluation(model).outputs(data.inputs).values()
    return outputs


def test_outputs_are_the_same(model, data):
    twin = torch_resnet8.translated(model)

    predicted = torch_resnet8.probabilities(twin, images_of(data)).numpy()

    assert predicted == pytest.approx(keras_outputs(model, data), abs=1e-5)
    assert torch_resnet8.accuracy(twin, data) == evaluation.evaluate(model, data)


def test_multiply_adds_are_equal(model, data):
    twin = torch_resnet8.translated(model)

    counted = torch_resnet8.multiply_adds(twin, images_of(data))

    assert counted == analyse(model).network().flops


def test_recalibration_is_the_same(data):
    model = resnet8()
    twin = torch_resnet8.translated(model)

    torch_resnet8.recalibrate(twin, data)
    evaluation.recalibrate(model, data)

    predicted = torch_resnet8.probabilities(twin, images_of(data)).numpy()
    # PyTorch divides by n - 1 instead of n in a variance.
    assert predicted == pytest.approx(keras_outputs(model, data), abs=5e-3)


def test_another_network_is_refused():
    inputs = keras.Input((32, 32, 3))
    outputs = layers.Dense(10)(layers.Flatten()(layers.Conv2D(4, 3)(inputs)))

    with pytest.raises(ValueError, match="conv2d"):
        torch_resnet8.translated(keras.Model(inputs, outputs))


def test_batches_contain_each_example_once_per_epoch():
    batches = torch_resnet8.batches(10, 3, seed=0)

    first = np.concatenate([next(batches).numpy() for _ in range(3)])

    assert len(set(first)) == 9
