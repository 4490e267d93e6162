"""The assembler: logits, scales and shifts of all units for a task and a limit."""

import keras
import numpy as np
import pytest

from executors.algorithms.nnfactory.assembler import AssemblerShape, assembler
from executors.algorithms.nnfactory.gates import gated_groups
from tests.executors.algorithms.nnfactory.conftest import inverted, made, residual


def made_for(make, modulate=True, worth=None, gaters=3, seed=2):
    groups = gated_groups(made(make))
    keras.utils.set_random_seed(seed)
    return assembler(AssemblerShape(5, 16, gaters, modulate), groups, worth)


def asked(model, limits, task=(1, 0, 0, 1, 0)):
    limits = np.array(limits, np.float32)[:, None]
    outputs = model([np.tile(np.float32(task), (len(limits), 1)), limits])
    return [np.asarray(output) for output in keras.tree.flatten(outputs)]


def test_units_start_unchanged_and_gates_depend_on_task_and_limit():
    model = made_for(residual)
    logits, scales, shifts = asked(model, [0.1, 0.5])
    assert logits.shape == scales.shape == shifts.shape == (2, 40)
    np.testing.assert_allclose(scales, 1, atol=0.2)
    np.testing.assert_allclose(shifts, 0, atol=0.2)
    assert np.abs(logits[0] - logits[1]).max() > 0.1
    other, *_ = asked(model, [0.1, 0.5], (0, 1, 0, 1, 0))
    assert np.abs(logits - other).max() > 0.1


@pytest.mark.parametrize("worth", [None, {"inner": np.zeros(24), "hidden": np.zeros(16)}])
def test_all_kernels_depend_on_the_seed_alone(worth):
    """And no two of one shape are alike: an initializer that is made once would see to both."""
    first, again, other = (made_for(residual, worth=worth, seed=seed) for seed in (2, 2, 3))
    for same, different, kernel in zip(again.weights, other.weights, first.weights, strict=True):
        if len(kernel.shape) > 1:
            np.testing.assert_array_equal(same, kernel)
            assert not np.array_equal(different, kernel), kernel.path
    kernels = [first.get_layer(f"inner-{name}").kernel.numpy() for name in ("scales", "shifts")]
    assert not np.array_equal(*kernels)


def test_gates_alone_are_the_only_output():
    assert len(asked(made_for(residual, modulate=False), [0.3])) == 1


def test_scales_stay_positive():
    model = made_for(residual)
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(weight + rng.normal(0, 0.5, weight.shape))
    _, scales, shifts = asked(model, np.linspace(0.05, 1, 10))
    assert (scales > 0).all()
    assert scales.min() < 0.1
    assert shifts.min() < -1


def test_groups_that_take_no_scales_have_neutral_ones():
    """The first group has 20 units."""
    model = made_for(inverted)
    for weight in model.trainable_weights:
        weight.assign(weight + 1)
    _, scales, shifts = asked(model, [0.3])
    assert (scales[:, :20] == 1).all()
    assert (shifts[:, :20] == 0).all()
    assert (scales[:, 20:] != 1).all()


def test_nearly_the_same_limit_has_nearly_the_same_encoding():
    """Sines and cosines whose periods are halved: [2, 0.03] of the range of limits."""
    model = made_for(residual)
    near, far = (np.abs(np.subtract(*asked(model, pair)[0])).max() for pair in ((0.3, 0.301), (0.3, 0.6)))
    assert near < 0.5 * far


def test_logits_are_those_of_all_gaters_weighted():
    """Gaters whose every logit is 0, 1 and 2, of which the last one weighs all but nothing."""
    model = made_for(residual)
    for layer in model.layers:
        if layer.name.endswith(("-gaters", "-mixing")):
            kernel, bias = layer.weights
            kernel.assign(np.zeros(kernel.shape))
            units = bias.shape[0] // 3
            bias.assign(np.repeat([0.0, 1, 2], units) if layer.name.endswith("-gaters") else [0, 0, 20])
    np.testing.assert_allclose(asked(model, [0.3])[0], 2, atol=1e-3)


def test_a_single_gater_is_not_mixed():
    model = made_for(residual, gaters=1)
    assert asked(model, [0.3])[0].shape == (1, 40)
    assert not [layer for layer in model.layers if layer.name.endswith("-mixing")]


@pytest.mark.parametrize("gaters", [1, 3])
def test_a_source_that_knows_its_tasks_starts_by_the_worth_of_its_units(gaters):
    worth = {"inner": np.linspace(-2, 2, 24), "hidden": np.linspace(3, 1, 16)}
    logits, *_ = asked(made_for(residual, worth=worth, gaters=gaters), [0.05, 1.0])
    np.testing.assert_allclose(logits, np.tile(np.concatenate([*worth.values()]), (2, 1)), atol=0.3)
