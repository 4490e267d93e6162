"""Losses of cutting single groups, in networks where they are known."""

import keras
import numpy as np
import pytest

from executors.contract.assignment import Assignment
from executors.data import Dataset
from executors.pruning.cut_losses import CutLosses
from executors.pruning.loss_table import measured_widths
from executors.structure import analyse, copied
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.costs.budget import FLOPS
from tests.executors.conftest import small_resnet
from tests.executors.pruning.copies import with_copies

layers = keras.layers


def losses_of(model, setup, groups=None):
    source = analyse(model)
    assignment = Assignment(model, {FLOPS: 1.0}, (), setup, 0, source)
    return dict(CutLosses(assignment).measured(list(source.groups) if groups is None else groups))


@pytest.fixture(scope="module")
def losses(trained, training_setup):
    return losses_of(trained, training_setup)


def test_narrower_groups_lose_more(losses, trained):
    groups = analyse(trained).groups
    assert losses.keys() == groups.keys()
    for name, own in losses.items():
        assert list(own) == measured_widths(groups[name])
        values = list(own.values())
        assert values[0] < values[-1]
        assert values[-1] > 0.05


def test_the_copies_of_units_are_cut_for_free(losses, trained, training_setup):
    of_copies = losses_of(with_copies(trained), training_setup)
    for name, own in of_copies.items():
        half, *_ = own.values()
        assert half < 0.02 < 0.5 * max(losses[name].values())


def test_dead_units_of_one_group_are_cut_for_free(losses, trained, training_setup):
    model = small_resnet()
    model.set_weights(trained.get_weights())
    structure = analyse(model)
    dead, *others = structure.groups
    group = structure.groups[dead]
    for slot in group.slots:
        variable = structure.graph.layers[slot.layer].weights[slot.weight]
        values = np.moveaxis(np.asarray(variable).copy(), slot.axis, 0)
        values[slot.positions[: group.size // 2].ravel()] = 0
        variable.assign(np.moveaxis(values, 0, slot.axis))
    measured = losses_of(model, training_setup)
    assert measured[dead][group.size // 2] < 1e-3
    assert min(max(measured[name].values()) for name in others) > 0.05


def test_each_cut_is_undone(losses, trained, training_setup):
    """The same losses are measured for one group alone as after all others."""
    last = list(losses)[-1]
    assert losses_of(trained, training_setup, [last]) == {last: losses[last]}


def test_each_cut_under_a_layer_norm_is_undone(digits):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.Dense(16, name="stream")(layers.Flatten()(inputs))
    inner = layers.Dense(12, "relu", name="inner")(layers.LayerNormalization()(x))
    x = layers.Add()([x, layers.Dense(16, name="back")(inner)])
    outputs = layers.Dense(10, "softmax", name="digit")(layers.LayerNormalization()(x))
    model = keras.Model(inputs, outputs)
    setup = TrainingSetup(*digits, None, TrainingParams(batch_size=32))
    losses = losses_of(model, setup)
    assert list(losses) == ["stream", "inner"]
    assert losses_of(model, setup, ["inner"]) == {"inner": losses["inner"]}


def test_the_loss_is_the_distance_of_the_outputs_after_the_best_fit():
    """With one layer behind the cut, that is a linear regression; its inputs have no noise to overfit."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,), name="x")
    hidden = layers.Dense(8, "tanh", name="hidden")
    model = keras.Model(inputs, layers.Dense(1, name="y")(hidden(inputs)))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 6)).astype("float32")
    data = Dataset({"x": x}, {"y": np.zeros((2000, 1), np.float32)})
    ((_, own),) = losses_of(model, TrainingSetup(data, data, None, TrainingParams())).items()
    activations, wanted = np.asarray(hidden(x), np.float64), np.asarray(model(x), np.float64)
    for width, loss in own.items():
        # The least of all choices of units is a lower bound; that of a random choice an upper one.
        errors = [best_fit(activations[:, rng.permutation(8)[:width]], wanted) for _ in range(60)]
        assert 0.8 * min(errors) < loss < 1.3 * np.median(errors)


def best_fit(inputs, wanted):
    known = np.c_[inputs, np.ones(len(inputs))]
    return float(np.square(known @ np.linalg.lstsq(known, wanted, rcond=None)[0] - wanted).mean())


def test_cut_channels_do_not_count_in_the_statistics_of_a_layer_norm(digits):
    """Half of the channels are copies of the others, so that the norm of one half equals that of both."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.Dense(8, "relu")(layers.Flatten()(inputs))
    x = layers.LayerNormalization()(x)
    model = keras.Model(inputs, layers.Dense(10, "softmax", name="digit")(x))
    model.layers[-1].kernel.assign(10 * model.layers[-1].kernel)
    wide = with_copies(model)
    setup = TrainingSetup(*digits, None, TrainingParams(batch_size=32))
    ((_, own),) = losses_of(wide, setup).items()
    assert own[8] < 1e-3


def test_a_network_whose_outputs_overflow_has_a_finite_loss(trained, training_setup):
    model = copied(trained)
    model.layers[-1].kernel.assign(model.layers[-1].kernel * 1e30)
    for own in losses_of(model, training_setup).values():
        assert all(np.isfinite(loss) for loss in own.values())
