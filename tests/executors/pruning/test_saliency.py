from itertools import combinations

import keras
import numpy as np
import pytest

from executors.data import Dataset
from executors.pruning.masks import Masks
from executors.pruning.reconstruction import Compensation
from executors.pruning.saliency import saliencies
from executors.structure import analyse
from tests.executors.conftest import small_resnet
from tests.executors.pruning.copies import with_copies

layers = keras.layers


def found_damages(model, data, keep=None):
    structure = analyse(model)
    compensation = Compensation(structure)
    keep = Masks(structure).keep | (keep or {})
    return saliencies(compensation.consumers, keep, compensation.moments(data))


def hidden_network(units=6):
    keras.utils.set_random_seed(1)
    inputs = keras.Input((9,), name="x")
    hidden = layers.Dense(units, "tanh", name="hidden")(inputs)
    return keras.Model(inputs, layers.Dense(3, name="out")(hidden))


def examples(model, count=800):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, *model.inputs[0].shape[1:])).astype("float32")
    return Dataset({"x": x}, {"y": np.zeros(count, np.int64)})


def lost(activations, predicted, cut):
    """Return the share of the outputs' variance that no least squares fit on the other units explains."""
    known = np.c_[np.delete(activations, list(cut), axis=1), np.ones(len(predicted))]
    best = known @ np.linalg.lstsq(known, predicted, rcond=None)[0]
    return np.square(best - predicted).sum() / np.square(predicted - predicted.mean(0)).sum()


def test_damage_is_the_variance_that_a_fit_on_the_other_units_cannot_explain():
    model = hidden_network()
    data = examples(model)
    activations = np.asarray(model.get_layer("hidden")(data.inputs["x"]), np.float64)
    predicted = np.asarray(model(data.inputs["x"]), np.float64)
    actual = found_damages(model, data)["hidden"] ** 2
    alone = [lost(activations, predicted, [unit]) for unit in range(6)]
    first = int(np.argmin(alone))
    assert actual.argmin() == first
    assert actual[first] == pytest.approx(alone[first], rel=0.05)


def test_the_saliency_of_a_unit_depends_on_the_units_cut_before():
    model = hidden_network()
    hidden = model.get_layer("hidden")
    kernel, bias = hidden.get_weights()
    kernel[:, 5], bias[5] = kernel[:, 2], bias[2]
    hidden.set_weights([kernel, bias])
    actual = found_damages(model, examples(model))["hidden"]
    twins = sorted(actual[[2, 5]])
    assert twins[0] < 0.05
    others = np.delete(actual, [2, 5])
    assert twins[1] > 0.1
    assert twins[0] < others.min() / 3


def test_the_greedy_order_is_nearly_as_good_as_the_best_choice():
    model = hidden_network()
    data = examples(model)
    activations = np.asarray(model.get_layer("hidden")(data.inputs["x"]), np.float64)
    predicted = np.asarray(model(data.inputs["x"]), np.float64)
    actual = found_damages(model, data)["hidden"]
    chosen = lost(activations, predicted, np.argsort(actual)[:3])
    best = min(lost(activations, predicted, cut) for cut in combinations(range(6), 3))
    assert chosen < 1.3 * best


def test_a_redundant_copy_is_cut_first(trained, digits):
    wide = with_copies(trained)
    actual = found_damages(wide, digits[0])
    for name, group in analyse(trained).groups.items():
        copies = len(actual[name]) - group.size
        values = np.sort(actual[name])
        assert values[copies - 1] < 0.2 * values[copies], name


def test_units_that_are_already_cut_are_ignored(digits):
    model = small_resnet()
    name = next(iter(analyse(model).groups))
    keep = {name: np.arange(analyse(model).groups[name].size) >= 2}
    actual = found_damages(model, digits[0], keep)[name]
    assert (actual[:2] == 0).all()
    assert (actual[2:] > 0).all()
