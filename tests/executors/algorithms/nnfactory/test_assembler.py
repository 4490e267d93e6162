"""The assembler: logits, scales and shifts of all units for a task and a limit."""

import keras
import numpy as np

from executors.algorithms.nnfactory.assembler import AssemblerShape, assembler
from executors.algorithms.nnfactory.gates import gated_groups
from tests.executors.algorithms.nnfactory.conftest import inverted, made, residual


def made_for(make, modulate=True, worth=None):
    groups = gated_groups(made(make))
    keras.utils.set_random_seed(2)
    return assembler(AssemblerShape(5, 16, 3, modulate), groups, worth)


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


def test_a_source_that_knows_its_tasks_starts_by_the_worth_of_its_units():
    worth = {"inner": np.linspace(-2, 2, 24), "hidden": np.linspace(3, 1, 16)}
    logits, *_ = asked(made_for(residual, worth=worth), [0.05, 1.0])
    np.testing.assert_allclose(logits, np.tile(np.concatenate([*worth.values()]), (2, 1)), atol=0.3)
