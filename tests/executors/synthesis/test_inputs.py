import keras
import numpy as np
import pytest

from executors.synthesis import inputs as synthesis
from executors.synthesis.inputs import generated
from executors.training.evaluation import examples_at_once
from mistify.errors import ErrorCode, MistifyError
from tests.executors.structure.networks import randomised

layers = keras.layers


def network(activation="softmax", units=3):
    inputs = keras.Input((6, 6, 2), name="image")
    x = layers.Conv2D(8, 3, name="conv")(inputs)
    x = layers.ReLU()(layers.BatchNormalization(name="norm")(x))
    x = layers.GlobalAveragePooling2D()(x)
    model = randomised(keras.Model(inputs, layers.Dense(units, activation, name="said")(x)))
    # As if trained on images that are brighter and have more contrast than noise.
    images = np.random.default_rng(3).normal(5, 20, (500, 6, 6, 2)).astype(np.float32)
    seen = np.asarray(model.get_layer("conv")(images)).reshape(-1, 8)
    model.get_layer("norm").moving_mean.assign(seen.mean(axis=0))
    model.get_layer("norm").moving_variance.assign(seen.var(axis=0))
    return model


def decisive(model):
    """Return the same network with more confident predictions."""
    kernel, bias = model.get_layer("said").get_weights()
    model.get_layer("said").set_weights([10 * kernel, 0 * bias])
    return model


@pytest.fixture(scope="module")
def model():
    return network()


@pytest.fixture(scope="module")
def data(model):
    return generated(model, 400, 0)


def test_synthetic_inputs_match_the_statistics_of_batch_norms(model, data):
    """Plain noise does not match them."""
    norm = model.get_layer("norm")

    def off(images):
        seen = np.asarray(model.get_layer("conv")(images)).reshape(-1, 8)
        means = np.abs(seen.mean(axis=0) - norm.moving_mean) / np.sqrt(norm.moving_variance)
        return means.max(), np.abs(np.log(seen.var(axis=0) / norm.moving_variance)).max()

    noise = np.random.default_rng(0).normal(size=(400, 6, 6, 2)).astype(np.float32)
    assert max(off(noise)) > 3
    assert max(off(data.inputs["image"])) < 0.5


def test_every_class_is_predicted_for_some_inputs(model, data):
    images = data.inputs["image"]
    assert images.shape == (400, 6, 6, 2)
    predicted = np.asarray(model(images)).argmax(axis=1)
    assert data.targets["said"].tolist() == predicted.tolist()
    assert np.bincount(predicted, minlength=3).min() > 80


def test_there_are_examples_of_rarely_predicted_classes(monkeypatch):
    """Even before inputs are changed towards such a class."""
    monkeypatch.setattr(synthesis, "_LEAST_SHARE", 0.0)
    model = decisive(network())
    seen = np.bincount(generated(model, 400, 0).targets["said"], minlength=3)
    monkeypatch.setattr(synthesis, "_BALANCE_WEIGHT", 0.0)
    otherwise = np.bincount(generated(model, 400, 0).targets["said"], minlength=3)
    assert seen.min() > 5 > otherwise.min()


def test_without_batch_norms_all_classes_are_predicted_equally_often():
    inputs = keras.Input((6, 6, 2), name="image")
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(8, 3, activation="tanh")(inputs))
    model = decisive(randomised(keras.Model(inputs, layers.Dense(3, "softmax", name="said")(x))))
    predicted = np.asarray(model(generated(model, 400, 0).inputs["image"]))
    noise = np.random.default_rng(0).normal(size=(400, 6, 6, 2)).astype(np.float32)
    assert predicted.max(axis=1).mean() > np.asarray(model(noise)).max(axis=1).mean() + 0.05
    assert np.bincount(predicted.argmax(axis=1), minlength=3).min() > 80


def test_inputs_are_reproducible_by_seed(model):
    one, again, other = (generated(model, 5, seed).inputs["image"] for seed in (0, 0, 1))
    np.testing.assert_allclose(again, one, rtol=1e-3, atol=1e-3)
    assert np.abs(other - one).max() > 1


def test_targets_suit_the_kind_of_the_output():
    whether = generated(network("sigmoid", 1), 3, 0).targets["said"]
    assert set(whether.ravel().tolist()) <= {0, 1}
    assert whether.dtype == np.int64
    model = network(None, 2)
    data = generated(model, 3, 0)
    np.testing.assert_allclose(data.targets["said"], model(data.inputs["image"]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("activation", "made"), [("softmax", "image"), (None, "said")])
def test_non_finite_outputs_are_refused(activation, made):
    """Even for classes, where argmax over NaN would give the first class."""
    model = network(activation)
    kernel, bias = model.get_layer("said").get_weights()
    model.get_layer("said").set_weights([kernel, np.full_like(bias, np.nan)])
    with pytest.raises(MistifyError, match=f"NaN or infinity in {made}") as caught:
        generated(model, 3, 0)
    assert caught.value.code is ErrorCode.INVALID_DATASET


def test_a_network_without_information_about_its_inputs_gets_noise():
    """A regression network without batch norms."""
    inputs = keras.Input((4, 3), name="series")
    model = randomised(keras.Model(inputs, layers.Dense(2, name="said")(layers.Flatten()(inputs))))
    made = generated(model, 200, 0).inputs["series"]
    assert made.mean() == pytest.approx(0, abs=0.1)
    assert made.std() == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_tokens_come_from_the_vocabulary(dtype):
    inputs = keras.Input((5,), dtype=dtype, name="tokens")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(7, 4)(inputs))
    data = generated(randomised(keras.Model(inputs, layers.Dense(3, "softmax", name="said")(x))), 300, 0)
    assert data.inputs["tokens"].shape == (300, 5)
    assert data.inputs["tokens"].dtype == dtype
    assert set(np.unique(data.inputs["tokens"]).tolist()) == set(range(7))


def test_batches_are_smaller_for_large_networks():
    inputs = keras.Input((256, 256, 3), name="image")
    x = inputs
    for _ in range(4):
        x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    model = keras.Model(inputs, layers.Dense(2, "softmax")(layers.GlobalAveragePooling2D()(x)))
    at_once = examples_at_once(model, 250, learning=True)
    assert 20 < at_once < examples_at_once(model, 250)
    assert at_once * 4 * 4 * 256 * 256 * 32 <= 2**31


def test_batches_are_no_larger_than_necessary(model):
    """An inspection requests one input to learn its form, and two batches of 125 would waste 50 inputs."""
    sizes = [synthesis._Synthesis(model, count, np.random.default_rng(0)).at_once for count in (1, 125, 200)]
    assert sizes == [1, 125, 100]


def test_inputs_are_as_smooth_as_the_batch_norms_indicate():
    """One batch norm has statistics of differences between neighbours, another one those of the values."""
    inputs = keras.Input((16, 16, 1), name="image")
    differences = layers.Conv2D(2, 2, use_bias=False, name="differences")
    x = layers.Concatenate()([layers.Cropping2D(((0, 1), (0, 1)))(inputs), differences(inputs)])
    norm = layers.BatchNormalization(name="norm")
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(norm(x)))
    model = randomised(keras.Model(inputs, layers.Dense(3, "softmax", name="said")(x)))
    kernel = np.zeros((2, 2, 1, 2), np.float32)
    kernel[0, 0, 0], kernel[0, 1, 0, 0], kernel[1, 0, 0, 1] = -1, 1, 1
    differences.set_weights([kernel])
    norm.moving_mean.assign([0, 0, 0])

    def steepness(variance):
        norm.moving_variance.assign([100, variance, variance])
        images = generated(model, 100, 0).inputs["image"]
        return np.diff(images, axis=1).var() / images.var(), images.std()

    for variance in (5, 200):
        steep, deviation = steepness(variance)
        assert steep == pytest.approx(variance / 100, rel=0.25)
        assert deviation == pytest.approx(10, rel=0.2)


def test_each_input_gets_its_own_scale():
    inputs = [keras.Input((4,), name="large"), keras.Input((4,), name="small")]
    norms = [layers.BatchNormalization(name=f"{tensor.name}_norm") for tensor in inputs]
    x = layers.Concatenate()([norm(tensor) for norm, tensor in zip(norms, inputs, strict=True)])
    model = randomised(keras.Model(inputs, layers.Dense(3, "softmax", name="said")(x)))
    for norm, deviation in zip(norms, (1e3, 1e-2), strict=True):
        norm.moving_mean.assign(np.full(4, deviation))
        norm.moving_variance.assign(np.full(4, deviation**2))
    made = generated(model, 200, 0).inputs
    for name, deviation in (("large", 1e3), ("small", 1e-2)):
        np.testing.assert_allclose(made[name].mean(axis=0), deviation, rtol=0.3)
        np.testing.assert_allclose(made[name].std(axis=0), deviation, rtol=0.3)


def test_progress_is_reported(model, monkeypatch):
    monkeypatch.setattr(synthesis, "_REPORT_SECONDS", -1.0)
    seen = []
    generated(model, 200, 0, on_step=lambda step, steps: seen.append((step, steps)))
    steps = 2 * synthesis._STEPS
    assert seen == [(step, steps) for step in range(steps)]


def test_inputs_of_frequent_classes_are_changed_to_the_most_likely_missing_class():
    """Each of three classes has to have at least two of ten examples (0.7 of a third, rounded down)."""
    probabilities = np.full((10, 3), (0.8, 0.15, 0.05), np.float32)
    probabilities[4:8] = (0.15, 0.8, 0.05)
    probabilities[8] = (0.05, 0.15, 0.8)
    probabilities[3] = (0.6, 0.1, 0.3)
    expected = np.zeros((10, 3))
    expected[[8, 3], 2] = 1  # its own examples, and the most likely others
    np.testing.assert_array_equal(synthesis.lacking_classes(probabilities), expected)
    probabilities[9] = (0.05, 0.15, 0.8)
    assert not synthesis.lacking_classes(probabilities).any()
