import keras
import numpy as np
import pytest

from executors.structure import fold_batch_norm
from executors.structure.signature import output_names
from tests.executors.structure.networks import batch, check_fold, outputs, randomised, same

layers = keras.layers
MAKERS = {
    "conv": lambda **options: layers.Conv2D(5, 3, **options),
    "grouped": lambda **options: layers.Conv2D(8, 3, groups=2, **options),
    "depthwise": lambda **options: layers.DepthwiseConv2D(3, depth_multiplier=2, **options),
    "separable": lambda **options: layers.SeparableConv2D(5, 3, **options),
    "transposed": lambda **options: layers.Conv2DTranspose(5, 3, **options),
    "dense": lambda **options: layers.Dense(5, **options),
}


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("maker", MAKERS)
def test_batch_norms_are_folded_into_every_linear_layer(maker, affine, use_bias):
    inputs = keras.Input((5, 5, 4))
    x = MAKERS[maker](use_bias=use_bias, name="linear")(inputs)
    x = layers.BatchNormalization(center=affine, scale=affine, epsilon=0.01)(x)
    folded = check_fold(randomised(keras.Model(inputs, layers.ReLU()(x))))
    assert [layer.name for layer in folded.layers[1:-1]] == ["linear"]


@pytest.mark.parametrize("maker", ["conv", "transposed", "depthwise", "separable"])
def test_batch_norms_are_folded_in_one_dimension(maker):
    makers = {
        "conv": layers.Conv1D(4, 3),
        "transposed": layers.Conv1DTranspose(4, 3),
        "depthwise": layers.DepthwiseConv1D(3, depth_multiplier=2),
        "separable": layers.SeparableConv1D(4, 3),
    }
    inputs = keras.Input((6, 2))
    folded = check_fold(randomised(keras.Model(inputs, layers.BatchNormalization()(makers[maker](inputs)))))
    assert len(folded.layers) == 2


def shared_maker(x):
    maker = layers.Dense(4)
    return layers.Add()([layers.BatchNormalization()(maker(x)), maker(x)])


def two_norms_of_one_maker(x):
    maker = layers.Dense(4)
    return layers.Add()([layers.BatchNormalization()(maker(x)), layers.BatchNormalization()(maker(x))])


def read_twice(x):
    y = layers.Dense(4)(x)
    return layers.Add()([layers.BatchNormalization()(y), y])


def activated(x):
    return layers.BatchNormalization()(layers.Dense(4, activation="tanh")(x))


def norm_first(x):
    return layers.Dense(4)(layers.BatchNormalization()(x))


def norm_of_positions(x):
    return layers.BatchNormalization(axis=1)(layers.Dense(4)(x))


def shared_norm(x):
    norm = layers.BatchNormalization()
    return layers.Add()([norm(layers.Dense(4)(x)), norm(layers.Dense(4)(x))])


@pytest.mark.parametrize(
    "network",
    [shared_maker, two_norms_of_one_maker, read_twice, activated, norm_first, norm_of_positions, shared_norm],
)
def test_a_batch_norm_that_cannot_be_folded_is_kept(network):
    inputs = keras.Input((4, 4))
    source = randomised(keras.Model(inputs, network(inputs)))
    folded = fold_batch_norm(source)
    same(outputs(source, batch(source)), outputs(folded, batch(source)))
    assert folded.count_params() == source.count_params()


def test_a_linear_layer_that_is_an_output_is_not_changed():
    inputs = keras.Input((4,))
    y = layers.Dense(4)(inputs)
    source = randomised(keras.Model(inputs, [y, layers.BatchNormalization()(y)]))
    same(outputs(source, batch(source)), outputs(fold_batch_norm(source), batch(source)))


def test_a_batch_norm_that_is_an_output_gives_it_its_name():
    inputs = keras.Input((4,))
    stream = layers.BatchNormalization(name="stream")(layers.Dense(4, name="linear")(inputs))
    score = layers.BatchNormalization(name="score")(layers.Dense(2)(layers.ReLU()(stream)))
    source = randomised(keras.Model(inputs, [stream, score]))
    assert output_names(check_fold(source)) == output_names(source) == ["stream", "score"]


def test_only_the_first_of_two_batch_norms_in_a_row_is_folded():
    inputs = keras.Input((4,))
    x = layers.BatchNormalization()(layers.BatchNormalization()(layers.Dense(5)(inputs)))
    source = randomised(keras.Model(inputs, x))
    folded = fold_batch_norm(source)
    same(outputs(source, batch(source)), outputs(folded, batch(source)))
    assert len(folded.layers) == 3


def test_a_batch_norm_with_channels_first_is_kept():
    inputs = keras.Input((4, 3, 3))
    x = layers.Conv2D(3, 1, data_format="channels_first")(inputs)
    source = keras.Model(inputs, layers.BatchNormalization(axis=-1)(x))
    assert fold_batch_norm(source).count_params() == source.count_params()


def test_folding_follows_the_formula():
    """`y = gamma * (w x + b - mean) / sqrt(variance + epsilon) + beta`, by hand."""
    inputs = keras.Input((1,))
    source = keras.Model(inputs, layers.BatchNormalization(epsilon=0.0, name="bn")(layers.Dense(1)(inputs)))
    source.layers[1].set_weights([np.array([[3.0]]), np.array([1.0])])
    source.get_layer("bn").set_weights([np.array([2.0]), np.array([5.0]), np.array([7.0]), np.array([4.0])])
    kernel, bias = fold_batch_norm(source).layers[1].get_weights()
    assert (kernel.item(), bias.item()) == (3.0, -1.0)
