"""Networks that downscale their images."""

import keras
import numpy as np
import pytest

from executors.structure import analyse, at_resolution, narrow, register, resolution
from executors.structure.handlers.elementwise import Pooling
from mistify.costs.axes import costs_of
from tests.executors.structure.networks import batch, outputs, randomised, same

layers, ops = keras.layers, keras.ops


def network(front=(), first="image"):
    """Return convolutions of all kinds, and a head that does not depend on the image size."""
    inputs = keras.Input((16, 24, 3), name=first)
    x = inputs
    for layer in front:
        x = layer(x)
    x = layers.Rescaling(1 / 8, name="scaling")(x)
    x = layers.Conv2D(8, 3, strides=2, padding="same", name="stem")(x)
    x = layers.BatchNormalization(name="norm")(x)
    y = layers.DepthwiseConv2D(3, padding="same", name="depthwise")(layers.ReLU()(x))
    x = layers.Add()([x, layers.Conv2D(8, 1, name="pointwise")(y)])
    x = layers.MaxPooling2D()(layers.LayerNormalization(name="layer_norm")(x))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(5, name="head")(x))


def weighted(model, other):
    """Copy the weights of layers with the same names from another model."""
    for layer in model.layers:
        if layer.weights:
            layer.set_weights(other.get_layer(layer.name).get_weights())
    return model


def test_only_the_image_size_changes():
    model = randomised(network())
    structure = analyse(model)
    actual = at_resolution(structure, 0.75)
    smaller = narrow(actual, {})
    expected = weighted(network([layers.Resizing(12, 18)]), model)
    same(outputs(expected, batch(model)), outputs(smaller, batch(model)))
    assert smaller.input_shape == model.input_shape
    assert costs_of(actual.network(), ()) == costs_of(analyse(expected).network(), ())
    assert actual.network().flops < 0.6 * structure.network().flops
    assert actual.widths == structure.widths == analyse(smaller).widths
    assert resolution(structure.graph) == 1
    assert resolution(actual.graph) == resolution(analyse(smaller).graph) == 0.75


def test_a_group_norm_with_a_single_position_left_needs_two_channels_in_each_group():
    inputs = keras.Input((16, 16, 3))
    x = layers.Conv2D(8, 3, strides=8, padding="same", name="stem")(inputs)
    x = layers.GlobalAveragePooling2D()(layers.GroupNormalization(2)(x))
    structure = analyse(keras.Model(inputs, layers.Dense(3)(x)))
    assert structure.least_widths == {"stem": 1}
    smaller = at_resolution(structure, 0.5)
    assert smaller.least_widths == analyse(narrow(smaller, {})).least_widths == {"stem": 2}


def test_further_downscaling_starts_from_the_original_images():
    model = randomised(network())
    once = narrow(at_resolution(analyse(model), 0.75), {})
    twice = at_resolution(analyse(once), 0.5)
    expected = weighted(network([layers.Resizing(6, 9)]), model)
    same(outputs(expected, batch(model)), outputs(narrow(twice, {}), batch(model)))
    assert resolution(twice.graph) == 0.375


def test_an_existing_resizing_layer_is_not_changed():
    model = randomised(network([layers.Resizing(12, 12, interpolation="nearest", name="own")]))
    smaller = narrow(at_resolution(analyse(model), 0.5), {})
    expected = weighted(network([layers.Resizing(6, 6, interpolation="nearest")]), model)
    same(outputs(expected, batch(model)), outputs(smaller, batch(model)))
    assert smaller.get_layer("own").get_config() == model.get_layer("own").get_config() | {
        "height": 6,
        "width": 6,
    }


def test_a_network_with_smaller_images_is_narrowed_like_any_other():
    model = randomised(network())
    actual = at_resolution(analyse(model), 0.5)
    keep = {name: np.arange(group.size) % 2 == 0 for name, group in actual.groups.items()}
    narrowed = narrow(actual, keep)
    same(outputs(narrow(analyse(narrow(actual, {})), keep), batch(model)), outputs(narrowed, batch(model)))
    widths = {name: int(mask.sum()) for name, mask in keep.items()}
    assert costs_of(actual.network(widths), ()) == costs_of(analyse(narrowed).network(), ())


def test_operations_for_images_of_any_size_allow_downscaling():
    inputs = images()
    x = ops.mean(ops.transpose(layers.Conv2D(4, 3, name="only")(inputs), (0, 2, 1, 3)), axis=2)
    x = ops.max(x[:, 1:], axis=1)
    model = randomised(keras.Model(inputs, layers.Dense(3)(x)))
    actual = at_resolution(analyse(model), 0.75)
    assert narrow(actual, {}).output_shape == model.output_shape
    assert actual.graph.shapes[actual.graph.outputs[0]] == (None, 3)


def pooled(x):
    return layers.Dense(3)(layers.GlobalAveragePooling2D()(x))


def images(shape=(8, 8, 3), dtype="float32"):
    return keras.Input(shape, dtype=dtype)


def of(build, *inputs):
    return keras.Model(inputs, build(*inputs))


class Minding(layers.ZeroPadding2D):
    """A custom layer that requires a fixed image size, and checks it itself."""

    def compute_output_shape(self, input_shape):
        if input_shape[1] != 8:
            raise RuntimeError("8 rows, please")
        return super().compute_output_shape(input_shape)


register(Minding)(Pooling)


class Halving(layers.UpSampling2D):
    """A custom layer that folds images of a fixed size."""

    def call(self, inputs):
        return ops.reshape(inputs, (-1, 4, 16, 3))

    compute_output_spec = keras.Operation.compute_output_spec


register(Halving)(Pooling)


MADE_FOR_THEIR_SIZE = {
    "flattened": lambda: of(lambda x: layers.Dense(3)(layers.Flatten()(x)), images()),
    "reshaped": lambda: of(lambda x: layers.Dense(3)(layers.Reshape((192,))(x)), images()),
    "reshaped by an operation": lambda: of(
        lambda x: layers.Dense(3)(ops.mean(ops.reshape(layers.ReLU()(x), (-1, 64, 3)), axis=1)), images()
    ),
    "cut into patches": lambda: of(
        lambda x: ops.reshape(pooled(ops.reshape(layers.ReLU()(x), (-1, 3, 3, 3))), (-1, 27)),
        images((9, 9, 3)),
    ),
    "some rows": lambda: of(lambda x: pooled(ops.take(layers.ReLU()(x), [0, 7], axis=1)), images()),
    "reshaped by a layer of a user's": lambda: of(lambda x: pooled(Halving()(x)), images()),
    "weights of positions": lambda: of(lambda x: pooled(layers.PReLU()(layers.Conv2D(4, 3)(x))), images()),
    "weights of positions first of all": lambda: of(lambda x: pooled(layers.PReLU()(x)), images()),
    "a layer that minds": lambda: of(lambda x: pooled(Minding()(x)), images()),
    "no place for the window": lambda: of(lambda x: pooled(layers.AveragePooling2D(8)(x)), images()),
    "an output of their size": lambda: of(layers.Conv2D(4, 3), images()),
    "sizes that no longer agree": lambda: of(
        lambda x: pooled(
            layers.Add()([x, layers.UpSampling2D(2)(layers.Conv2D(3, 3, 2, padding="same")(x))])
        ),
        images((16, 16, 3)),
    ),
    "two of them": lambda: of(lambda x, y: pooled(layers.Add()([x, y])), images(), images()),
    "a free size": lambda: of(lambda x: pooled(layers.Conv2D(4, 3)(x)), images((None, None, 3))),
    "integers": lambda: of(lambda x: pooled(layers.Rescaling(1.0)(x)), images(dtype="uint8")),
    "a single position left for the norm of each channel": lambda: of(
        lambda x: pooled(layers.GroupNormalization(-1)(layers.Conv2D(4, 3, 8, padding="same")(x))),
        images((9, 9, 3)),
    ),
    "no images": lambda: of(layers.Dense(3), keras.Input((8,))),
}


@pytest.mark.parametrize("name", MADE_FOR_THEIR_SIZE)
def test_networks_that_depend_on_the_image_size_are_not_changed(name):
    structure = analyse(MADE_FOR_THEIR_SIZE[name]())
    assert at_resolution(structure, 0.7) is None
    assert resolution(structure.graph) == 1
