"""Networks for comparisons."""

import keras
import numpy as np

layers = keras.layers


def resnet8():
    """Return MLPerf Tiny's ResNet-8 at other widths, with random weights and statistics."""
    keras.utils.set_random_seed(0)

    def unit(x, width, kernel, strides):
        x = layers.Conv2D(width, kernel, strides, "same")(x)
        return x if kernel == 1 else layers.BatchNormalization()(x)

    inputs = keras.Input((32, 32, 3), name="image")
    x = layers.ReLU()(unit(inputs, 4, 3, 1))
    for inner, outer, strides in ((3, 4, 1), (5, 6, 2), (9, 7, 2)):
        y = unit(layers.ReLU()(unit(x, inner, 3, strides)), outer, 3, 1)
        shortcut = x if strides == 1 else unit(x, outer, 1, strides)
        x = layers.ReLU()(layers.Add()([y, shortcut]))
    x = layers.Flatten()(layers.AveragePooling2D(8)(x))
    model = keras.Model(inputs, layers.Dense(10, "softmax", name="class")(x))
    rng = np.random.default_rng(0)
    model.set_weights([weight + rng.uniform(0.1, 0.2, weight.shape) for weight in model.get_weights()])
    return model
