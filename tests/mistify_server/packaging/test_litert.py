"""Converted networks against the models they come from."""

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from executors.data import Dataset
from executors.structure import fold_batch_norm
from mistify.errors import ErrorCode, MistifyError
from mistify.manifest import Manifest
from mistify_server.packaging import litert
from mistify_server.packaging.package import PackageOrder, make_package
from tests.executors.structure.networks import randomised

layers = keras.layers
ORDER = PackageOrder("job-1", "half", {"flops": 1e6}, 0.7, {"flops": 9e5, "params": 100.0}, 0.75)


def network(seed=0):
    """A small residual network with batch norm, random everywhere."""
    inputs = keras.Input((8, 8, 2), name="image")
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(6, 3, padding="same")(inputs)))
    y = layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x))
    y = layers.BatchNormalization()(layers.Conv2D(6, 1)(y))
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(layers.Add()([x, y])))
    return randomised(keras.Model(inputs, layers.Dense(3, "softmax", name="scores")(x)), seed)


def images(batch):
    return np.random.default_rng(batch).uniform(size=(batch, 8, 8, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def model():
    return network()


@pytest.fixture(scope="module")
def converted(model):
    return litert.convert(model)


@pytest.fixture(scope="module")
def package(model):
    return make_package(model, ORDER, test_set())


def test_set():
    return Dataset({"image": images(70)}, {"scores": np.zeros(70, np.int64)})


test_set.__test__ = False


@pytest.mark.parametrize("batch", [1, 2, 33])
def test_a_converted_network_equals_its_model(model, converted, batch):
    found = litert.run(converted, images(batch))
    assert found.shape == (batch, 3)
    np.testing.assert_allclose(found, model.predict(images(batch), verbose=0), atol=1e-5)


def operators(network):
    """The operators of a network, without the delegate that would hide those it takes over."""
    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=network, experimental_op_resolver_type=plain)
    return [operator["op_name"] for operator in interpreter._get_ops_details()]


def test_batch_norm_is_folded(converted):
    found = operators(converted)
    assert sorted(found) == [
        "ADD", "CONV_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MEAN", "SOFTMAX"
    ]  # fmt: skip


def test_a_network_is_no_larger_than_one_without_batch_norm(model, converted):
    folded = fold_batch_norm(model)
    assert not any(isinstance(layer, layers.BatchNormalization) for layer in folded.layers)
    plain = keras.models.clone_model(folded)
    plain.set_weights(folded.get_weights())
    assert abs(len(converted) - len(litert.convert(plain))) < 64


def test_the_converted_model_is_not_changed(model):
    before = [weight.copy() for weight in model.get_weights()]
    litert.convert(model)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


def test_the_tensors_are_those_of_the_model(converted):
    (taken,), (given,) = litert.tensors(converted)
    assert (taken.name, taken.dtype, taken.shape) == ("image", "float32", (-1, 8, 8, 2))
    assert (given.name, given.dtype, given.shape) == ("scores", "float32", (-1, 3))


def test_latency_is_measured_with_its_conditions(converted):
    latency = litert.measure_latency(converted)
    assert 0 < latency.median_ms <= latency.p95_ms < 1000
    assert 1 <= latency.runs <= 200
    assert latency.threads == 1
    assert len(latency.machine.split()) > 1
    assert latency.runtime.startswith("ai-edge-litert ")


def test_a_package_describes_itself(package, tmp_path):
    for name, content in package.files.items():
        (tmp_path / name).write_bytes(content)
    manifest = Manifest.load(tmp_path)
    assert manifest == package.manifest
    assert set(package.files) == {"serve.tflite", "manifest.json"}
    assert (manifest.job, manifest.goal, manifest.accuracy) == ("job-1", "half", 0.75)
    assert (manifest.budget, manifest.accuracy_target) == ({"flops": 1e6}, 0.7)
    size = len(package.files["serve.tflite"])
    assert manifest.achieved == {"flops": 9e5, "params": 100.0, "size_bytes": size}
    assert manifest.files["serve.tflite"].size == size
    assert manifest.versions.keras == keras.__version__


def test_inputs_of_whole_numbers_will_do(model):
    whole = Dataset(
        {"image": np.random.default_rng(0).integers(0, 255, (9, 8, 8, 2), np.uint8)},
        {"scores": np.zeros(9, np.int64)},
    )
    assert make_package(model, ORDER, whole).files


@pytest.mark.parametrize("other", ["other weights", "other classes", "broken for batches"])
def test_a_package_that_differs_from_its_checkpoint_is_refused(model, monkeypatch, other):
    convert, run = litert.convert, litert.run
    if other == "other weights":
        nudged = keras.models.clone_model(model)
        nudged.set_weights([weight * 1.001 for weight in model.get_weights()])
        monkeypatch.setattr(litert, "convert", lambda _: convert(nudged))
    elif other == "other classes":
        image = keras.Input((8, 8, 2), name="image")
        smaller = keras.Model(image, layers.Dense(2, name="scores")(layers.Flatten()(image)))
        monkeypatch.setattr(litert, "convert", lambda _: convert(smaller))
    else:
        monkeypatch.setattr(
            litert, "run", lambda network, given: run(network, given[:1].repeat(len(given), 0))
        )
    with pytest.raises(MistifyError, match="differ from its checkpoint") as caught:
        make_package(model, ORDER, test_set())
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE


def test_outputs_that_are_no_numbers_are_refused(model):
    broken = keras.models.clone_model(model)
    broken.set_weights([np.full_like(weight, np.nan) for weight in model.get_weights()])
    with pytest.raises(MistifyError, match="differ from its checkpoint"):
        make_package(broken, ORDER, test_set())
