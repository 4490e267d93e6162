import keras
import numpy as np

from executors.data import Dataset
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer, constant

layers = keras.layers


def test_prices_are_trained_at_the_default_rate():
    """Their gradients would be millions of times as large as those of classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(512, 6)).astype(np.float32)
    prices = 5000 + 2000 * (np.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3])
    data = Dataset({"x": x}, {"price": prices.astype(np.float32)})
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,), name="x")
    hidden = layers.ReLU()(layers.BatchNormalization()(layers.Dense(64)(inputs)))
    head = layers.Dense(1, name="price", kernel_initializer=keras.initializers.RandomNormal(stddev=500))
    model = keras.Model(inputs, head(hidden))
    head.bias.assign([5000.0])
    setup = TrainingSetup(data, data, None, TrainingParams(batch_size=64))
    Trainer(model, setup, 0).train(constant(150))
    error = np.asarray(model(x, training=False)) - prices
    assert np.square(error).mean() < 0.5 * prices.var()
