"""The source, tuned and widened for its goals."""

import keras
import numpy as np
import pytest

from executors.data import Dataset
from executors.structure import analyse
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.config.data.dataset import Augmentation, DataSettings
from mistify.costs.budget import FLOPS
from mistify_server.tasks.sources import DataSource
from mistify_server.worker.adaptation.source import expanded, flips_suit, tuned_source

layers = keras.layers
SEED = 5


def linear():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8,), name="x")
    return keras.Model(inputs, layers.Dense(3, "softmax", name="y")(inputs))


def labelled(source, seed, known):
    """Return data of which the source predicts a share correctly."""
    x = np.random.default_rng(seed).normal(size=(400, 8)).astype(np.float32)
    classes = source.predict(x, verbose=0).argmax(axis=1)
    return Dataset({"x": x}, {"y": (classes + (np.arange(400) >= 400 * known)) % 3})


def setup(source, validation_known):
    train, validation = labelled(source, 0, 0.0), labelled(source, 1, validation_known)
    return TrainingSetup(train, validation, None, PARAMS)


PARAMS = TrainingParams(batch_size=32, learning_rate=0.1, distillation=0.0)


@pytest.mark.parametrize(("validation_known", "kept"), [(0.9, False), (0.0, True)])
def test_a_tuned_source_is_kept_if_it_is_better_on_the_validation_data(validation_known, kept):
    """It always improves on its training data."""
    source = linear()
    tuned = tuned_source(source, setup(source, validation_known), 200, SEED, lambda steps: None)
    assert (tuned is not source) == kept


@pytest.mark.parametrize(("validation_known", "trained"), [(1.0, 0), (0.9, 200)])
def test_a_source_that_is_never_wrong_on_the_validation_data_is_not_trained(validation_known, trained):
    source, done = linear(), [0]
    tuned_source(source, setup(source, validation_known), 200, SEED, done.append)
    assert done[-1] == trained


def test_a_source_without_tuning_is_the_unchanged_root():
    source = linear()
    assert tuned_source(source, setup(source, 0.0), 0, SEED, lambda steps: None) is source


@pytest.mark.parametrize(
    ("train", "augment", "flips"),
    [
        ("train.npz", None, True),
        ("train.npz", Augmentation(), False),
        ("train.npz", Augmentation(crop=1), False),
        ("generated:400", None, False),
    ],
)
def test_images_are_flipped_by_default_if_the_source_is_invariant(train, augment, flips):
    """One source detects the brightness of images, the other one which side is brighter."""
    settings = DataSettings(augment=augment)
    for turned, minds in (1, False), (-1, True):
        inputs = keras.Input((4, 6, 1), name="x")
        model = keras.Model(inputs, layers.Dense(2, name="y")(layers.Flatten()(inputs)))
        half = np.ones((4, 3)), np.full((4, 3), turned)
        kernel = np.concatenate(half, axis=1).reshape(-1, 1)
        model.set_weights([np.concatenate([kernel, -kernel], axis=1), np.zeros(2)])
        images = np.random.default_rng(0).normal(size=(200, 4, 6, 1)).astype(np.float32)
        data = Dataset({"x": images}, {"y": model.predict(images, verbose=0).argmax(axis=1)})
        of_data = TrainingSetup(data, data, None, PARAMS, settings)
        source = DataSource(train=train, test="test.npz", settings=settings)
        assert flips_suit(model, source, of_data) == (flips and not minds)


def partly_fixed_network():
    """Return a network with one hidden layer that a norm over the inputs keeps from widening, and another."""
    inputs = keras.Input((8,))
    stays = layers.Dense(16, name="stays")(inputs)
    stays = layers.LayerNormalization()(layers.Concatenate()([inputs, stays]))
    grows = layers.Dense(16, name="grows")(inputs)
    return keras.Model(inputs, layers.Dense(4)(layers.Concatenate()([stays, grows])))


@pytest.mark.parametrize("share", [1.0, 1.1, 1.25])
def test_required_costs_are_reached_by_widening_groups_that_can_be_widened(share):
    structure = analyse(partly_fixed_network())
    limit = share * structure.network().flops
    wide = analyse(expanded(structure, {FLOPS: limit}, (), 0))
    assert wide.widths["stays"] == 16
    assert limit <= wide.network().flops < limit + 2 * (8 + 4)
