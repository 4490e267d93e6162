"""Heads, trained for a moment on a network of digits."""

import numpy as np
import pytest

from executors.exits.heads import train_heads
from executors.exits.trunk import Trunk
from executors.structure import analyse, fold_batch_norm
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.config.data.dataset import Augmentation, DataSettings
from tests.data.make_exits import digits, network


@pytest.fixture(scope="module")
def model():
    return network()


@pytest.fixture(scope="module")
def trunk(model):
    return Trunk(model)


@pytest.fixture(scope="module")
def heads(model, trunk):
    train, validation, _ = digits()
    before = model.get_weights()
    setup = TrainingSetup(train, validation, None, TrainingParams(batch_size=32, distillation=0.0))
    trained = train_heads(model, trunk, setup, 0)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    return trained


def test_each_position_gets_a_head(trunk, heads):
    assert [head.position for head in heads] == list(trunk.positions)
    assert len(heads) >= 3


def test_heads_learn_from_features_of_a_network_with_random_weights(trunk, heads):
    _, validation, _ = digits()
    *features, _ = trunk.pooled()(validation.inputs["image"], training=False)
    for head, pooled in zip(heads, features, strict=True):
        predicted = np.asarray(head.classifier(pooled)).argmax(1)
        assert np.mean(predicted == validation.targets["digit"]) > 0.8  # by chance 0.1


def test_a_head_pools_the_features_that_its_stage_computes(trunk, heads):
    images = digits()[1].inputs["image"][:5]
    *features, _ = trunk.pooled()(images, training=False)
    x = images
    for stage, head, pooled in zip(trunk.stages(trunk.positions), heads, features, strict=False):
        x = stage(x, training=False)
        np.testing.assert_allclose(head.model(x), head.classifier(pooled), atol=1e-5)


def test_hidden_layers_cost_at_most_a_share_of_the_network(trunk, heads):
    for head in heads:
        layers = analyse(fold_batch_norm(head.model)).network().layers
        assert head.multiply_adds == sum(layer.multiply_adds for layer in layers if layer.multiply_adds)
        hidden = [weight.shape for weight in head.classifier.weights if len(weight.shape) == 2][:-1]
        for inputs, units in hidden:
            assert inputs * units <= 0.02 * trunk.multiply_adds
            assert units > 10


def test_images_are_mirrored_if_steps_flip_them(model, trunk, monkeypatch):
    train, validation, _ = digits()
    settings = DataSettings(augment=Augmentation(flip=True))
    setup = TrainingSetup(train, validation, None, TrainingParams(), settings)
    sizes = []

    def stopped(classifiers, own, *others, **more):
        sizes.append(len(own.train))
        raise InterruptedError

    monkeypatch.setattr("executors.exits.heads.compressing_trainer", stopped)
    with pytest.raises(InterruptedError):
        train_heads(model, trunk, setup, 0)
    assert sizes == [2 * len(train)]
