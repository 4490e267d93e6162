import keras
import numpy as np
import pytest

from executors.data import Dataset
from executors.pruning.importance import importances
from executors.pruning.masks import Masks
from executors.pruning.reconstruction import Compensation
from executors.structure import analyse, copied, narrow, widen
from executors.training.evaluation import Evaluation, evaluate, recalibrate
from tests.executors.conftest import small_resnet
from tests.executors.pruning.copies import with_copies
from tests.executors.structure.networks import randomised

layers = keras.layers


def examples(model, count=600, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, *model.inputs[0].shape[1:])).astype("float32")
    return Dataset({"x": x}, {"y": rng.integers(0, 3, count)})


def cut(model, keep, data, compensated=True):
    """Mask units of a model in place without changing its physical widths."""
    structure = analyse(model)
    masks = Masks(structure)
    if compensated:
        compensation = Compensation(structure)
        compensation.apply(masks.keep, {**masks.keep, **keep}, compensation.moments(data))
    masks.set(keep)


def kernels(model):
    return {layer.name: layer.kernel.numpy() for layer in model.layers if hasattr(layer, "kernel")}


def difference(one, other, data):
    """Return the mean difference between the outputs of two networks."""
    predicted = [Evaluation(model).outputs(data.inputs)["digit"] for model in (one, other)]
    return np.abs(predicted[0] - predicted[1]).mean()


def test_the_remaining_copy_of_a_unit_compensates_for_the_others(trained, digits):
    original, wide = copied(trained), with_copies(trained)
    keep = {name: np.arange(group.size) % 2 == 0 for name, group in analyse(wide).groups.items()}
    cut(wide, keep, digits[0])
    for model in (original, wide):
        recalibrate(model, digits[0])
    assert difference(wide, original, digits[1]) < 5e-3


def test_moments_of_nearly_constant_channels_are_accurate():
    """The squared mean of the first channel is millions of times its variance, beyond float32's precision."""
    inputs = keras.Input((32, 32, 3), name="x")
    x = layers.Conv2D(4, 1, name="first")(inputs)
    x = layers.Conv2D(2, 1, name="second")(x)
    model = keras.Model(inputs, layers.Dense(3, name="y")(layers.Flatten()(x)))
    kernel, bias = model.get_layer("first").get_weights()
    kernel[..., 0] *= 1e-3
    model.get_layer("first").set_weights([kernel, bias + 2.6])
    data = examples(model, 500)
    structure = analyse(model)
    compensation = Compensation(structure)
    moments = compensation.moments(data)
    (consumer,) = compensation.consumers[next(name for name in structure.groups if name.startswith("first"))]
    exact = data.inputs["x"].reshape(-1, 3).astype(np.float64) @ kernel.reshape(3, 4).astype(np.float64)
    known = moments[consumer.tensor]
    covariance = known.product - np.outer(known.mean, known.mean)
    np.testing.assert_allclose(np.diag(covariance), exact.var(0), rtol=1e-3)
    np.testing.assert_allclose(known.mean, exact.mean(0) + 2.6, rtol=1e-6)


def test_cutting_copies_without_compensation_changes_the_outputs(trained, digits):
    wide = with_copies(trained)
    keep = {name: np.arange(group.size) % 2 == 0 for name, group in analyse(wide).groups.items()}
    cut(wide, keep, digits[0], compensated=False)
    recalibrate(wide, digits[0])
    assert difference(wide, trained, digits[1]) > 2e-2


@pytest.mark.parametrize("use_bias", [True, False])
def test_a_dense_layer_is_replaced_by_its_least_squares_fit(use_bias):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,), name="x")
    hidden = layers.Dense(8, "tanh", name="hidden")
    outputs = layers.Dense(3, name="out", use_bias=use_bias)
    model = keras.Model(inputs, outputs(hidden(inputs)))
    hidden.bias.assign(np.linspace(-1, 1, 8))
    data = examples(model)
    activations = np.asarray(hidden(data.inputs["x"]), np.float64)
    predicted = np.asarray(model(data.inputs["x"]), np.float64)
    keep = np.arange(8) < 5
    cut(model, {"hidden": keep}, data)
    known = np.c_[activations[:, keep], np.ones(len(predicted))] if use_bias else activations[:, keep]
    best = known @ np.linalg.lstsq(known, predicted, rcond=None)[0]
    actual = np.asarray(model(data.inputs["x"]), np.float64)
    assert np.square(actual - predicted).mean() == pytest.approx(np.square(best - predicted).mean(), rel=1e-2)


def test_a_convolution_is_compensated_at_each_position():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((9, 9, 2), name="x")
    first = layers.Conv2D(6, 1, activation="tanh", name="first")
    second = layers.Conv2D(4, 1, name="second")
    model = keras.Model(inputs, layers.Conv2D(3, 3, name="out")(second(first(inputs))))
    # The last two channels are linear combinations of the others.
    kernel = first.kernel.numpy()
    first.bias.assign(np.array([0.3, -0.2, 0.1, 0.2, -0.2, 0.3]))
    kernel[..., 4], kernel[..., 5] = kernel[..., 1], kernel[..., 0]
    first.kernel.assign(kernel)
    data = examples(model, 300)
    expected = np.asarray(model(data.inputs["x"]))
    cut(model, {"first": np.arange(6) < 4}, data)
    np.testing.assert_allclose(np.asarray(model(data.inputs["x"])), expected, atol=0.03)


def test_a_constant_channel_is_absorbed_by_the_bias():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4, 4, 2), name="x")
    first = layers.Conv2D(3, 1, name="first")
    out = layers.Conv2DTranspose(2, 3, name="out")
    model = keras.Model(inputs, layers.Flatten()(out(first(inputs))))
    kernel = first.kernel.numpy()
    kernel[..., 2] = 0
    first.kernel.assign(kernel)
    first.bias.assign([0.1, 0.2, 0.7])
    data = examples(model, 300)
    expected = np.asarray(model(data.inputs["x"])).reshape(300, 6, 6, 2)
    cut(model, {"first": np.array([True, True, False])}, data)
    actual = np.asarray(model(data.inputs["x"])).reshape(300, 6, 6, 2)
    # Away from the borders, all nine positions of the kernel contribute.
    np.testing.assert_allclose(actual[:, 2:4, 2:4], expected[:, 2:4, 2:4], atol=1e-3)


def test_a_strided_transposed_kernel_distributes_a_constant_over_its_outputs():
    """Each input position contributes to four outputs through one kernel position each."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4, 4, 2), name="x")
    first = layers.Conv2D(3, 1, name="first")
    out = layers.Conv2DTranspose(2, 2, strides=2, name="out")
    model = keras.Model(inputs, out(first(inputs)))
    kernel = first.kernel.numpy()
    kernel[..., 2] = 0
    first.kernel.assign(kernel)
    first.bias.assign([0.1, 0.2, 0.7])
    data = examples(model, 300)
    expected = np.asarray(model(data.inputs["x"])).mean(axis=(0, 1, 2))
    cut(model, {"first": np.array([True, True, False])}, data)
    actual = np.asarray(model(data.inputs["x"])).mean(axis=(0, 1, 2))
    np.testing.assert_allclose(actual, expected, atol=1e-3)


def test_nothing_changes_without_a_cut(digits):
    model = small_resnet()
    before = kernels(model)
    structure = analyse(model)
    everything = Masks(structure).keep
    compensation = Compensation(structure)
    compensation.apply(everything, everything, compensation.moments(digits[0]))
    for name, kernel in kernels(model).items():
        np.testing.assert_array_equal(kernel, before[name])


@pytest.mark.parametrize(
    "consumer",
    [
        layers.Conv2D(4, 3, groups=2, name="consumer"),
        layers.SeparableConv2D(4, 3, name="consumer"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_that_do_not_sum_over_all_channels_are_not_changed(consumer):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6, 6, 3), name="x")
    first = layers.Conv2D(4, 1, name="first")
    model = keras.Model(inputs, layers.Conv2D(2, 1, name="out")(consumer(first(inputs))))
    before = [weight.numpy() for weight in consumer.weights]
    structure = analyse(model)
    name = next(iter(structure.groups))
    everything = Masks(structure).keep
    after = {**everything, name: np.arange(structure.groups[name].size) != 0}
    compensation = Compensation(structure)
    compensation.apply(everything, after, compensation.moments(examples(model, 50)))
    for weight, expected in zip(consumer.weights, before, strict=True):
        np.testing.assert_array_equal(np.asarray(weight), expected)


def test_compensation_preserves_accuracy_of_a_trained_network(trained, digits):
    reached = []
    for compensated in (True, False):
        model = small_resnet()
        model.set_weights(trained.get_weights())
        structure = analyse(model)
        actual = importances(structure, Masks(structure).keep)
        keep = {name: norms > np.quantile(norms, 0.25) for name, norms in actual.items()}
        cut(model, keep, digits[0], compensated)
        recalibrate(model, digits[0])
        reached.append(evaluate(model, digits[1]))
    assert reached[0] > reached[1] + 0.1, reached


def attending():
    """Return a pre-norm network with attention and a dense layer on one residual stream."""
    inputs = keras.Input((5, 6), name="x")
    x = layers.Dense(8, name="stream")(inputs)
    y = layers.LayerNormalization()(x)
    x = layers.Add()([x, layers.MultiHeadAttention(2, 4, name="attention")(y, y)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return randomised(keras.Model(inputs, layers.Dense(3, "softmax", name="y")(x)))


@pytest.mark.parametrize("compensated", [True, False])
def test_attention_reads_the_remaining_copies(compensated):
    source = attending()
    data = examples(source)
    structure = analyse(widen(analyse(source), 2.0))
    width = structure.groups["stream"].size
    keep = {"stream": np.arange(width) % 2 == 0}
    wide = narrow(structure, {})
    structure = analyse(wide)
    if compensated:
        compensation = Compensation(structure)
        everything = {name: np.ones(size, bool) for name, size in structure.widths.items()}
        compensation.apply(everything, {**everything, **keep}, compensation.moments(data))
    small = narrow(structure, keep)
    predicted = [Evaluation(model).outputs(data.inputs)["y"] for model in (source, small)]
    off = np.abs(predicted[0] - predicted[1]).mean()
    assert off < 5e-3 if compensated else off > 2e-2
