from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.readers.loading import load_dataset
from executors.structure.signature import signature_of
from executors.training.evaluation import Evaluation
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup

layers = keras.layers

# Tests train small networks briefly, for which optimizing the graphs takes longer than it saves.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def small_resnet(seed=0, batch_norm=True):
    """Return a residual network for the digits that trains in a second."""
    keras.utils.set_random_seed(seed)

    def unit(x, width):
        x = layers.Conv2D(width, 3, padding="same", use_bias=not batch_norm)(x)
        return layers.BatchNormalization(momentum=0.9)(x) if batch_norm else x

    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.ReLU()(unit(inputs, 8))
    y = unit(layers.ReLU()(unit(x, 12)), 8)
    x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.ReLU()(unit(layers.MaxPooling2D()(x), 16))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10, "softmax", name="digit")(x))


@pytest.fixture(scope="session")
def digits():
    signature = signature_of(small_resnet())
    return tuple(load_dataset(f"builtin:digits-{part}", signature) for part in ("train", "test"))


@pytest.fixture(scope="session")
def trained(digits) -> Iterator[keras.Model]:
    """Return the small residual network, trained for a few epochs. Tests must not modify it."""
    model = small_resnet()
    model.compile(keras.optimizers.Adam(5e-3), "sparse_categorical_crossentropy")
    model.fit(digits[0].inputs["image"], digits[0].targets["digit"], batch_size=64, epochs=15, verbose=0)
    before = model.get_weights()
    yield model
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then, "a test has changed the network that all tests share")


@pytest.fixture(scope="session")
def training_setup(digits, trained):
    teacher = Evaluation(trained).outputs(digits[0].inputs)
    return TrainingSetup(*digits, teacher, TrainingParams(batch_size=32, optimizer="adam"))
