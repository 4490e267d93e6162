import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.pruning.importance import importances
from executors.pruning.masks import Masks
from executors.pruning.structure_loss import StructureLoss
from executors.structure import analyse, narrow
from executors.training.trainer import Trainer, constant
from tests.executors.conftest import small_resnet


def batch_norms(model):
    return [layer for layer in model.layers if hasattr(layer, "moving_mean")]


def test_importance_is_the_norm_of_all_weights_of_a_channel(trained):
    structure = analyse(trained)
    first, second = [layer for layer in trained.layers if hasattr(layer, "kernel")][1:3]
    norm = batch_norms(trained)[1]
    made, read = np.asarray(first.kernel), np.asarray(second.kernel)
    squares = (made**2).sum((0, 1, 2)) + (read**2).sum((0, 1, 3))
    squares += np.asarray(norm.gamma) ** 2 + np.asarray(norm.beta) ** 2
    expected = np.sqrt(squares) / np.sqrt(squares).mean()
    np.testing.assert_allclose(importances(structure, Masks(structure).keep)[first.name], expected, rtol=1e-5)


def test_structure_loss_is_the_l1_norm_of_the_scales(trained):
    structure = analyse(trained)
    loss = StructureLoss(structure)
    strengths = {name: 1.0 + index for index, name in enumerate(structure.groups)}
    loss.set_strengths(strengths)
    norms = {layer.name: layer for layer in batch_norms(trained)}
    expected = 0.0
    for name, group in structure.groups.items():
        passed = {slot.layer for slot in group.slots} & norms.keys()
        expected += strengths[name] * sum(np.abs(np.asarray(norms[norm].gamma)).sum() for norm in passed)
    assert float(loss()) == pytest.approx(expected, rel=1e-5)


def test_structure_loss_without_batch_norm_is_a_group_lasso():
    model = small_resnet(batch_norm=False)
    structure = analyse(model)
    loss = StructureLoss(structure)
    name = list(structure.groups)[-1]
    loss.set_strengths({other: float(other == name) for other in structure.groups})
    layer = structure.graph.layers[name]
    expected = np.sqrt((np.asarray(layer.kernel) ** 2).sum((0, 1, 2)) + np.asarray(layer.bias) ** 2).sum()
    assert float(loss()) == pytest.approx(expected, rel=1e-4)


def test_a_network_trained_with_masks_equals_the_narrowed_one(trained, training_setup):
    model = small_resnet()
    model.set_weights(trained.get_weights())
    structure = analyse(model)
    masks = Masks(structure)
    rng = np.random.default_rng(0)
    masks.set(
        {name: rng.permutation(group.size) < group.size // 2 for name, group in structure.groups.items()}
    )
    Trainer(model, training_setup, 0, after_step=masks.apply).train(constant(5))
    small = narrow(structure, masks.keep)
    assert small.count_params() < 0.5 * model.count_params()
    images = training_setup.validation.inputs["image"][:50]
    np.testing.assert_allclose(model(images), small(images), atol=1e-5)
    assert masks.widths == {name: group.size // 2 for name, group in structure.groups.items()}


def test_sparsifying_shrinks_the_scales(trained, training_setup):
    def scales(strength):
        model = small_resnet()
        model.set_weights(trained.get_weights())
        structure = analyse(model)
        loss = StructureLoss(structure)
        loss.set_strengths(dict.fromkeys(structure.groups, strength))
        Trainer(model, training_setup, 0, loss).train(constant(40))
        return sum(float(tf.reduce_sum(tf.abs(layer.gamma))) for layer in batch_norms(model))

    assert scales(0.1) < 0.95 * scales(0.0)


def test_groups_that_share_a_norm_only_count_their_own_scales():
    inputs = keras.Input((4, 4, 1))
    parts = [keras.layers.Conv2D(width, 1, name=f"c{width}")(inputs) for width in (2, 3)]
    norm = keras.layers.BatchNormalization()
    x = norm(keras.layers.Concatenate()([*parts, inputs]))
    structure = analyse(keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(x))))
    norm.gamma.assign([1, -2, 4, 8, 16, 1000])
    loss = StructureLoss(structure)
    for name, expected in {"c2": 3, "c3": 28}.items():
        loss.set_strengths({other: float(other == name) for other in structure.groups})
        assert float(loss()) == pytest.approx(expected)
