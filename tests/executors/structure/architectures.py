"""Small networks of every family, with masks where a human would place them for each channel group.

A builder takes `mask(group, tensor, repeat=None)`, which returns the tensor with the group's channels
masked; `repeat` says how to expand the group's mask to the tensor's channels.
"""

import keras
import numpy as np
import pytest

from tests.executors.structure.networks import conv, head

layers = keras.layers


def chain(mask):
    inputs = keras.Input((8, 8, 3))
    x = mask("a", conv(6, "a")(inputs))
    x = mask("b", conv(5, "b", strides=2)(x))
    x = layers.Conv2D(7, 3, activation="tanh", name="c")(x)
    return keras.Model(inputs, head(mask("c", x)))


def residual_identity(mask):
    inputs = keras.Input((6, 6, 3))
    x = mask("stem", conv(6, "stem")(inputs))
    for block in "ab":
        y = mask(f"{block}1", conv(5, f"{block}1")(x))
        y = layers.BatchNormalization(name=f"{block}2_bn")(
            layers.Conv2D(6, 3, padding="same", name=f"{block}2")(y)
        )
        x = mask("stem", layers.Add(name=f"{block}_add")([mask("stem", y), x]))
        x = mask("stem", layers.ReLU(name=f"{block}_relu")(x))
    return keras.Model(inputs, head(x))


def residual_projection(mask):
    inputs = keras.Input((8, 8, 3))
    x = mask("stem", conv(4, "stem")(inputs))
    y = mask("a1", conv(5, "a1", strides=2)(x))
    y = layers.BatchNormalization(name="a2_bn")(layers.Conv2D(6, 3, padding="same", name="a2")(y))
    shortcut = layers.Conv2D(6, 1, strides=2, name="projection")(x)
    x = layers.ReLU()(layers.Add()([mask("a2", y), mask("a2", shortcut)]))
    return keras.Model(inputs, head(mask("a2", x)))


def dense_net(mask):
    inputs = keras.Input((6, 6, 3))
    x = mask("stem", conv(5, "stem")(inputs))
    for block in "ab":
        y = mask(block, conv(4, block)(x))
        x = layers.Concatenate(name=f"{block}_concat")([x, y])
    return keras.Model(inputs, head(x))


def concat_then_norm(mask):
    inputs = keras.Input((6, 6, 3))
    a = layers.Conv2D(5, 3, padding="same", name="a")(inputs)
    b = layers.Conv2D(4, 1, name="b")(inputs)
    x = layers.Concatenate()([a, inputs, b])
    x = layers.ReLU()(layers.BatchNormalization()(x))
    # The output of the batch norm is masked: part of a, then the input, then part of b.
    x = mask("a", x, lambda kept: np.r_[kept, np.ones(7, bool)])
    x = mask("b", x, lambda kept: np.r_[np.ones(8, bool), kept])
    return keras.Model(inputs, head(x))


def concat_of_positions(mask):
    inputs = keras.Input((6, 4, 3))
    a = mask("a", conv(5, "a")(inputs))
    b = mask("a", conv(5, "b")(inputs))
    x = layers.Concatenate(axis=1)([a, b])
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))


def depthwise(mask):
    inputs = keras.Input((8, 8, 3))
    x = mask("a", conv(6, "a")(inputs))
    x = layers.DepthwiseConv2D(3, use_bias=False, name="dw")(x)
    x = mask("a", layers.ReLU(6.0)(layers.BatchNormalization()(x)))
    x = mask("b", layers.Conv2D(5, 1, activation="relu", name="b")(x))
    return keras.Model(inputs, head(x))


def depthwise_multiplier(mask):
    inputs = keras.Input((8, 8, 3))
    x = mask("a", conv(5, "a")(inputs))
    x = layers.DepthwiseConv2D(3, depth_multiplier=2, name="dw")(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    # Channel c of the input becomes channels 2c and 2c + 1.
    x = mask("a", x, lambda kept: np.array([k for k in kept for _ in range(2)]))
    return keras.Model(inputs, head(mask("b", conv(4, "b")(x))))


def depthwise_1d(mask):
    inputs = keras.Input((9, 2))
    x = mask("a", layers.Conv1D(5, 3, activation="relu", name="a")(inputs))
    x = layers.DepthwiseConv1D(3, depth_multiplier=2, activation="relu", name="dw")(x)
    x = mask("a", x, lambda kept: np.array([k for k in kept for _ in range(2)]))
    x = layers.Conv1D(4, 1, name="b")(x)
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(mask("b", x))))


def separable(mask):
    inputs = keras.Input((8, 8, 3))
    x = mask("a", conv(5, "a")(inputs))
    x = layers.SeparableConv2D(6, 3, depth_multiplier=2, use_bias=False, name="sep")(x)
    x = mask("sep", layers.ReLU()(layers.BatchNormalization()(x)))
    return keras.Model(inputs, head(x))


def separable_1d(mask):
    inputs = keras.Input((9, 2))
    x = mask("a", layers.SeparableConv1D(5, 3, activation="relu", name="a")(inputs))
    x = mask("b", layers.SeparableConv1D(4, 3, activation="relu", name="b")(x))
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))


def transposed(mask):
    inputs = keras.Input((4, 4, 3))
    x = mask("a", conv(5, "a")(inputs))
    x = layers.Conv2DTranspose(4, 3, strides=2, padding="same", use_bias=False, name="up")(x)
    x = mask("up", layers.ReLU()(layers.BatchNormalization()(x)))
    return keras.Model(inputs, layers.Conv2D(2, 1, name="out")(x))


def transposed_1d(mask):
    inputs = keras.Input((5, 2))
    x = mask("a", layers.Conv1D(5, 3, activation="relu", name="a")(inputs))
    x = layers.Conv1DTranspose(4, 3, strides=2, name="up")(x)
    x = mask("up", layers.ReLU()(layers.BatchNormalization()(x)))
    return keras.Model(inputs, layers.Conv1D(2, 1, name="out")(x))


def grouped(mask):
    """Build a ResNeXt block: 8 channels in 4 groups, which are the units of `mid` and `mid2`."""
    pairs = lambda kept: np.array([k for k in kept for _ in range(2)])  # noqa: E731
    inputs = keras.Input((6, 6, 3))
    x = mask("stem", conv(6, "stem")(inputs))
    y = mask("mid", conv(8, "mid")(x), pairs)
    y = mask("mid", conv(8, "mid2", groups=4)(y), pairs)
    y = layers.BatchNormalization()(layers.Conv2D(6, 1, name="c")(y))
    x = mask("stem", layers.ReLU()(layers.Add()([mask("stem", y), x])))
    return keras.Model(inputs, head(x))


def grouped_as_depthwise(mask):
    inputs = keras.Input((6, 6, 3))
    x = mask("a", conv(5, "a")(inputs))
    x = mask("a", conv(5, "dw", groups=5)(x))
    return keras.Model(inputs, head(mask("b", conv(4, "b")(x))))


def _squeeze_excite(x, mask, group, squeeze):
    gate = squeeze(x)
    units = x.shape[-1]
    gate = mask(f"{group}_reduce", layers.Dense(3, activation="relu", name=f"{group}_reduce")(gate))
    return layers.Dense(units, activation="sigmoid", name=f"{group}_expand")(gate)


def squeeze_excite_reshape(mask):
    inputs = keras.Input((6, 6, 3))
    x = mask("a", conv(6, "a")(inputs))
    squeeze = lambda x: layers.Reshape((1, 1, 6))(layers.GlobalAveragePooling2D()(x))  # noqa: E731
    x = layers.Multiply()([x, mask("a", _squeeze_excite(x, mask, "a", squeeze))])
    return keras.Model(inputs, head(mask("b", conv(5, "b")(x))))


def squeeze_excite_keepdims(mask):
    inputs = keras.Input((6, 6, 3))
    x = mask("a", conv(6, "a")(inputs))
    squeeze = layers.GlobalAveragePooling2D(keepdims=True)
    gate = squeeze(x)
    gate = mask("r", layers.Conv2D(4, 1, activation="relu", name="r")(gate))
    gate = mask("a", layers.Conv2D(6, 1, activation="sigmoid", name="e")(gate))
    x = mask("b", conv(5, "b")(layers.Multiply()([gate, x])))
    return keras.Model(inputs, head(x))


def spatial_gate(mask):
    """Build a gate with one channel for all channels of another tensor; it must be kept."""
    inputs = keras.Input((6, 6, 3))
    x = mask("a", conv(6, "a")(inputs))
    gate = layers.Conv2D(1, 1, activation="sigmoid", name="gate")(x)
    return keras.Model(inputs, head(layers.Multiply()([x, gate])))


def flattened(mask):
    inputs = keras.Input((5, 4, 2))
    x = mask("a", conv(5, "a", strides=2)(inputs))
    x = mask("hidden", layers.Dense(6, activation="relu", name="hidden")(layers.Flatten()(x)))
    return keras.Model(inputs, layers.Dense(3)(x))


def flattened_single(mask):
    inputs = keras.Input((4, 4, 2))
    x = conv(1, "a")(mask("b", conv(3, "b")(inputs)))
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))


def reshaped_to_positions(mask):
    """Reshape 12 dense units into 4 positions of 3 channels: units c, c + 3, c + 6, c + 9 belong together."""
    inputs = keras.Input((5,))
    x = layers.Dense(12, activation="relu", name="a")(inputs)
    x = mask("a", layers.Reshape((2, 2, 3))(x))
    return keras.Model(inputs, layers.Conv2D(4, 2, name="out")(x))


def reshaped_to_vector(mask):
    inputs = keras.Input((4, 4, 2))
    x = layers.Reshape((-1, 10))(layers.Reshape((2, 40))(mask("a", conv(5, "a")(inputs))))
    x = mask("b", layers.Dense(4, activation="relu", name="b")(x))
    return keras.Model(inputs, layers.Dense(3)(layers.Reshape((-1,))(x)))


def one_dimensional(mask):
    inputs = keras.Input((16, 3))
    x = layers.ZeroPadding1D(1)(inputs)
    x = layers.Conv1D(6, 3, name="a")(x)
    x = mask("a", layers.ReLU()(layers.BatchNormalization()(x)))
    x = layers.UpSampling1D(2)(layers.Cropping1D(1)(layers.MaxPooling1D(2)(x)))
    x = mask("b", layers.Conv1D(5, 3, strides=2, activation="gelu", name="b")(x))
    x = layers.AveragePooling1D(2)(x)
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalMaxPooling1D()(x)))


def positions_only(mask):
    inputs = keras.Input((8, 8, 3))
    x = mask("a", conv(6, "a")(inputs))
    x = layers.Cropping2D(1)(layers.ZeroPadding2D(2)(layers.UpSampling2D(2)(layers.MaxPooling2D(2)(x))))
    x = layers.Dropout(0.5)(layers.SpatialDropout2D(0.5)(x))
    x = mask("b", layers.LeakyReLU()(layers.Conv2D(5, 3, name="b")(x)))
    x = layers.ELU()(layers.AveragePooling2D(2)(layers.Rescaling(0.5, 0.1)(x)))
    x = mask("b", x)
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalMaxPooling2D()(x)))


def parametric_relu(mask):
    inputs = keras.Input((6, 6, 3))
    x = layers.PReLU(shared_axes=[1, 2])(layers.Conv2D(5, 3, name="a")(inputs))
    x = layers.PReLU()(layers.Conv2D(4, 3, name="b")(mask("a", x)))
    return keras.Model(inputs, head(mask("b", x)))


def siamese(mask):
    left, right = keras.Input((6, 6, 3), name="left"), keras.Input((6, 6, 3), name="right")
    first = layers.Conv2D(5, 3, name="a")
    norm, act, pool = layers.BatchNormalization(), layers.ReLU(), layers.GlobalAveragePooling2D()
    embed = layers.Dense(4, activation="tanh", name="embed")
    x, y = (mask("embed", embed(pool(mask("a", act(norm(first(side))))))) for side in (left, right))
    x = mask("embed", layers.Subtract()([x, y]))
    return keras.Model([left, right], layers.Dense(2)(x))


def merges(mask):
    inputs = keras.Input((6,))
    a, b, c = (mask("a", layers.Dense(5, activation="tanh", name=name)(inputs)) for name in "abc")
    x = layers.Maximum()([a, layers.Minimum()([b, c])])
    x = layers.Average()([x, layers.Multiply()([a, c])])
    return keras.Model(inputs, layers.Dense(3)(x))


def sequence(mask):
    inputs = keras.Input((4,))
    x = mask("a", layers.Dense(5, activation="relu", name="a")(inputs))
    x = layers.RepeatVector(3)(x)
    x = layers.Permute((1, 2))(x)
    x = mask("b", layers.Conv1D(4, 2, activation="relu", name="b")(x))
    return keras.Model(inputs, layers.Dense(2)(layers.Flatten()(x)))


FAMILIES = {
    "chain": (chain, {"a": 6, "b": 5, "c": 7}),
    "residual_identity": (residual_identity, {"stem": 6, "a1": 5, "b1": 5}),
    "residual_projection": (residual_projection, {"stem": 4, "a1": 5, "a2": 6}),
    "dense_net": (dense_net, {"stem": 5, "a": 4, "b": 4}),
    "concat_then_norm": (concat_then_norm, {"a": 5, "b": 4}),
    "concat_of_positions": (concat_of_positions, {"a": 5}),
    "depthwise": (depthwise, {"a": 6, "b": 5}),
    "depthwise_multiplier": (depthwise_multiplier, {"a": 5, "b": 4}),
    "depthwise_1d": (depthwise_1d, {"a": 5, "b": 4}),
    "separable": (separable, {"a": 5, "sep": 6}),
    "separable_1d": (separable_1d, {"a": 5, "b": 4}),
    "transposed": (transposed, {"a": 5, "up": 4}),
    "transposed_1d": (transposed_1d, {"a": 5, "up": 4}),
    "grouped": (grouped, {"stem": 6, "mid": 4}),
    "grouped_as_depthwise": (grouped_as_depthwise, {"a": 5, "b": 4}),
    "squeeze_excite_reshape": (squeeze_excite_reshape, {"a": 6, "a_reduce": 3, "b": 5}),
    "squeeze_excite_keepdims": (squeeze_excite_keepdims, {"a": 6, "r": 4, "b": 5}),
    "spatial_gate": (spatial_gate, {"a": 6}),
    "flattened": (flattened, {"a": 5, "hidden": 6}),
    "flattened_single": (flattened_single, {"a": 1, "b": 3}),
    "reshaped_to_positions": (reshaped_to_positions, {"a": 3}),
    "reshaped_to_vector": (reshaped_to_vector, {"a": 5, "b": 4}),
    "one_dimensional": (one_dimensional, {"a": 6, "b": 5}),
    "positions_only": (positions_only, {"a": 6, "b": 5}),
    "parametric_relu": (parametric_relu, {"a": 5, "b": 4}),
    "siamese": (siamese, {"a": 5, "embed": 4}),
    "merges": (merges, {"a": 5}),
    "sequence": (sequence, {"a": 5, "b": 4}),
}

#: Families that together cover all kinds of layers and of dependencies between widths.
BROAD_FAMILIES = (
    *("residual_projection", "dense_net", "depthwise_multiplier", "separable_1d", "transposed", "grouped"),
    *("squeeze_excite_keepdims", "spatial_gate", "flattened", "siamese", "merges", "sequence"),
)

#: Parameters for tests that are slow with all families: only the broad families are not marked slow.
MOSTLY_SLOW_FAMILIES = [
    name if name in BROAD_FAMILIES else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES
]
