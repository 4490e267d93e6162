"""Small networks with batch norms behind every kind of linear layer, and what Keras says of them."""

from functools import cache

import keras
import numpy as np

from executors.structure.folding import foldable
from executors.structure.reading.reader import read_graph
from mistify.adaptation.observing import folded_norms
from mistify.config.package.quantization import QuantizationConfig
from mistify.package.adaptation import ARRAYS, FoldedNorm
from mistify_server.worker.packaging.adaptation.norms import located_norms
from mistify_server.worker.packaging.conversion.converter import convert
from tests.executors.structure.networks import randomised

layers = keras.layers

MAKERS = {
    "conv": lambda: layers.Conv2D(6, 3, 2, use_bias=False, name="linear"),
    "depthwise": lambda: layers.DepthwiseConv2D(3, depth_multiplier=2, name="linear"),
    "separable": lambda: layers.SeparableConv2D(5, 3, name="linear"),
    "transposed": lambda: layers.Conv2DTranspose(5, 3, 2, name="linear"),
    "dense": lambda: layers.Dense(7, name="linear"),
}


def after(maker):
    """Return a network with a batch norm behind a linear layer, with an activation that is fused."""
    x = image = keras.Input((8, 8, 3), name="image")
    x = layers.Rescaling(1 / 255)(x)
    x = layers.Conv2D(4, 3, padding="same", activation="relu", name="stem")(x)
    x = layers.Flatten()(x) if maker == "dense" else x
    x = layers.ReLU(6.0)(layers.BatchNormalization(epsilon=0.01, name="norm")(MAKERS[maker]()(x)))
    x = layers.Dense(3, name="class")(layers.Flatten()(x))
    return randomised(keras.Model(image, x))


def residual():
    """Return a network with three norms, one without a factor and one without an activation."""
    x = image = keras.Input((8, 8, 3), name="image")
    x = layers.Rescaling(1 / 127.5, offset=-1)(x)
    x = layers.ReLU()(layers.BatchNormalization(name="a")(layers.Conv2D(24, 3, padding="same")(x)))
    y = layers.ReLU()(
        layers.BatchNormalization(scale=False, name="b")(layers.Conv2D(24, 3, padding="same")(x))
    )
    y = layers.BatchNormalization(name="c")(layers.Conv2D(24, 3, padding="same")(y))
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(layers.Add()([x, y])))
    return randomised(keras.Model(image, layers.Dense(3, "softmax", name="class")(x)))


def pixels(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3)).astype(np.float32)


@cache
def converted(make, *arguments, precision="none"):
    """Return a model, its `.tflite`, and the norms found in it."""
    model = make(*arguments)
    network = convert(model, QuantizationConfig.model_validate({"precision": precision}))
    return model, network, located_norms([model], network)


def records(located):
    """Return located norms as in a package, and with their numbers."""
    norms = [
        FoldedNorm(
            name=one.name,
            channels=len(one.arrays["mean"]),
            operators=one.operators,
            variance_move=0.1,
            mean_move=0.1,
        )
        for one in located
    ]
    numbers = {name: np.concatenate([one.arrays[name] for one in located]) for name in ARRAYS}
    return norms, folded_norms(norms, numbers)


def moments(model, examples):
    """Return the moments of what each folded batch norm reads, in the order of `located_norms`."""
    norms = [norm.layer for norm in foldable(read_graph(model))]
    read = keras.Model(model.inputs, [norm.input for norm in norms])(examples, training=False)
    read = read if isinstance(read, list) else [read]
    flat = [np.asarray(one, np.float64).reshape(-1, one.shape[-1]) for one in read]
    return [one.mean(0) for one in flat], [one.var(0) for one in flat]


def with_statistics(model, statistics, sizes):
    """Return a copy of a model whose foldable batch norms have other statistics."""
    other = keras.models.clone_model(model)
    other.set_weights(model.get_weights())
    norms = [norm.name for norm in foldable(read_graph(model))]
    ends = np.cumsum(sizes)[:-1]
    for name, mean, variance in zip(
        norms, np.split(statistics.mean, ends), np.split(statistics.variance, ends), strict=True
    ):
        layer = other.get_layer(name)
        layer.moving_mean.assign(mean)
        layer.moving_variance.assign(variance)
    return other
