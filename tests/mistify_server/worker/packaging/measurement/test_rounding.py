"""The accuracy that is lost where tensors between blocks are rounded, compared with Keras."""

import keras
import numpy as np
import pytest

from executors.data import Dataset
from executors.outputs.objectives import objectives_of
from executors.structure.blocks import blocks_of
from mistify.config.data.dataset import DataSettings
from mistify.config.data.metric import Metric
from mistify.costs.quantization import Quantization
from mistify.package.blocks import BLOCKS, BlockStore
from mistify_server.tasks.sources import DataSource
from mistify_server.worker.packaging.conversion.blocks import block_store
from mistify_server.worker.packaging.measurement.rounding import with_rounding_losses
from tests.executors.structure.networks import randomised

layers = keras.layers
SOURCE = DataSource(train="a", test="b", settings=DataSettings(metric=Metric.ACCURACY))
IMAGES = np.random.default_rng(1).uniform(size=(70, 8, 8, 3)).astype(np.float32)


def network(outlier: float) -> keras.Model:
    """Return a network with two pooled positions; the second has a channel that is constant and large."""
    inputs = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(6, 3, 2, padding="same", activation="relu", name="first")(inputs)
    x = layers.MaxPooling2D(2, name="pool")(x)
    x = layers.Conv2D(4, 2, activation="relu", name="second")(x)
    x = layers.GlobalMaxPooling2D(name="features")(x)
    model = randomised(keras.Model(inputs, layers.Dense(5, name="scores")(x)))
    kernel, bias = model.get_layer("second").get_weights()
    kernel[..., 0], bias[0] = 0, outlier
    model.get_layer("second").set_weights([kernel, bias])
    kernel, bias = model.get_layer("scores").get_weights()
    kernel[0] = 0  # no class depends on that channel
    model.get_layer("scores").set_weights([kernel, bias])
    return model


def measured(model: keras.Model, precision: Quantization) -> tuple[BlockStore, Dataset]:
    """Return the store of a network, with the losses on data whose classes are those of the network."""
    scores = np.asarray(model(IMAGES, training=False))
    data = Dataset({"image": IMAGES}, {"scores": scores.argmax(-1)})
    blocks = blocks_of(model, 0.0)
    files = block_store(blocks, precision, {"image": IMAGES}, served=[block.file for block in blocks])
    files = with_rounding_losses(files, data, objectives_of(model, data), SOURCE)
    return BlockStore.model_validate_json(files[BLOCKS]), data


def steps(tensor: np.ndarray) -> np.ndarray:
    """Return a tensor of one example in 256 even steps."""
    least, greatest = tensor.min(), tensor.max()
    return least + np.rint((tensor - least) / (greatest - least) * 255) * (greatest - least) / 255


def expected_loss(model: keras.Model, data: Dataset, layer: str) -> float:
    """Return the share of examples whose class changes if the output of a layer is rounded."""
    tensor = model.get_layer(layer).output
    before, after = keras.Model(model.input, tensor), keras.Model(tensor, model.output)
    features = np.stack([steps(one) for one in np.asarray(before(IMAGES, training=False))])
    changed = np.asarray(after(features, training=False)).argmax(-1) != data.targets["scores"]
    return float(np.mean(changed))


@pytest.mark.parametrize(("outlier", "least"), [(0.0, 0.0), (300.0, 0.1)])
def test_the_loss_at_each_cut_is_that_of_keras(outlier, least) -> None:
    model = network(outlier)
    store, data = measured(model, Quantization.NONE)
    names = {place: tensor.name for place, tensor in enumerate(store.positions, start=1)}
    for position, loss in store.rounding_losses.items():
        assert loss == pytest.approx(expected_loss(model, data, names[position])), names[position]
    assert max(store.rounding_losses.values()) >= least


def test_integers_are_not_rounded_again() -> None:
    store, _ = measured(network(0.0), Quantization.INT8)
    assert store.rounding_losses == {}
