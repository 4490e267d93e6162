"""A small MobileNet, ported by benchmarks in addition to pretrained networks."""

import keras


def mobilenet() -> keras.Model:
    """Return a small MobileNet with random weights, on images of 32 x 32."""
    keras.utils.set_random_seed(0)
    layers = keras.layers
    inputs = keras.Input((32, 32, 3), name="image")
    x = layers.Rescaling(1 / 127.5, offset=-1)(inputs)
    x = layers.Conv2D(24, 3, padding="same", use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    for width, stride in ((48, 2), (48, 1), (96, 2), (96, 1), (192, 2), (192, 1)):
        x = layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.Conv2D(width, 1, use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    outputs = layers.Dense(10, "softmax", name="class")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, outputs, name="depthwise")
