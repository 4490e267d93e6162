"""Candidates are evaluated with inherited weights, without changing the source."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.data import Dataset
from executors.pruning.masks import Masks
from executors.pruning.reconstruction import Compensation
from executors.search import Architecture, Inheritance
from executors.structure import analyse, at_resolution, copied, narrow, remove_blocks, residual_blocks
from executors.training.evaluation import Evaluation


@pytest.fixture
def inheritance(trained, training_setup):
    structure = analyse(copied(trained))
    rng = np.random.default_rng(0)
    compensation = Compensation(structure)
    return Inheritance(
        structure,
        Masks(structure),
        compensation,
        compensation.moments(training_setup.train),
        Evaluation(keras.Model(*_ends(structure))),
        {name: rng.random(group.size) for name, group in structure.groups.items()},
        training_setup,
    )


def _ends(structure):
    """Return inputs and outputs of the model made from the structure's layers."""
    model = structure.graph.build(lambda _, layer: layer, {})
    return model.inputs, model.outputs


def half(structure, removed_blocks=frozenset()):
    return Architecture({name: group.size // 2 for name, group in structure.groups.items()}, removed_blocks)


def cut(structure, shallow, scale):
    """Return the structure without its blocks, at a resolution."""
    left = remove_blocks(structure, residual_blocks(structure.graph)) if shallow else structure
    return at_resolution(left, scale) if scale < 1 else left


def loss(model, training_setup):
    """Compute the loss independently, on the first 500 validation examples of a permutation."""
    rng = np.random.default_rng(0)
    rng.permutation(len(training_setup.train))  # recalibrates statistics
    test = training_setup.validation.subset(rng.permutation(len(training_setup.validation))[:500])
    entropy = tf.keras.losses.sparse_categorical_crossentropy(
        test.targets["digit"], model.predict(test.inputs["image"], verbose=0)
    )
    return float(np.mean(entropy))


def test_the_most_valuable_units_are_kept(inheritance):
    keep = inheritance.keep(half(inheritance.structure))
    for name, values in inheritance.values.items():
        assert keep[name].sum() == len(values) // 2
        assert values[keep[name]].min() > values[~keep[name]].max()


def test_units_cut_before_are_not_kept(inheritance):
    name, group = next(iter(inheritance.structure.groups.items()))
    best = np.argsort(-inheritance.values[name])[: group.size // 2]
    inheritance.masks.set({name: ~np.isin(np.arange(group.size), best)})
    assert not inheritance.keep(half(inheritance.structure))[name][best].any()


@pytest.mark.sampled
@pytest.mark.parametrize("scale", [1, 0.75])
@pytest.mark.parametrize("shallow", [False, True])
def test_the_quality_is_that_of_the_network_that_would_be_adopted(
    inheritance, trained, training_setup, shallow, scale
):
    model = copied(trained)
    structure = analyse(model)
    blocks = residual_blocks(structure.graph) if shallow else []
    architecture = half(structure, frozenset(block.name for block in blocks))
    keep = inheritance.keep(architecture)
    whole = {name: np.ones(group.size, bool) for name, group in structure.groups.items()}
    Compensation(structure).apply(whole, keep, inheritance.moments)
    left = cut(structure, shallow, scale)
    expected = narrow(left, {name: keep[name] for name in left.groups})
    order = np.random.default_rng(0).permutation(len(training_setup.train))
    Evaluation(expected).recalibrate(training_setup.train.subset(order[:500]))
    actual = inheritance.quality(architecture, cut(inheritance.structure, shallow, scale))
    assert actual == pytest.approx(-np.log(loss(expected, training_setup)), abs=2e-3)


def test_the_source_network_is_not_changed(inheritance):
    before = {
        name: [np.array(weight) for weight in own]
        for name, own in inheritance.structure.graph.weights.items()
    }
    first = inheritance.quality(half(inheritance.structure), inheritance.structure)
    assert all(mask.all() for mask in inheritance.masks.keep.values())
    for name, own in inheritance.structure.graph.weights.items():
        for weight, expected in zip(own, before[name], strict=True):
            np.testing.assert_array_equal(weight, expected)
    assert inheritance.quality(half(inheritance.structure), inheritance.structure) == first


def test_few_examples_are_used_for_both_calibration_and_evaluation(inheritance, training_setup):
    few = replace(training_setup, train=training_setup.train.subset(np.arange(40)))
    actual = replace(inheritance, setup=few)
    assert np.isfinite(actual.quality(half(actual.structure), actual.structure))


@pytest.mark.parametrize("count", [40, 501, 999, 1_000, 1_200])
def test_candidates_are_calibrated_on_the_same_500_examples(inheritance, training_setup, count):
    train = training_setup.train.subset(np.arange(count) % len(training_setup.train))
    measured = []

    class Noting(Dataset):
        def subset(self, indices):
            measured.append(len(indices))
            return super().subset(indices)

    actual = replace(inheritance, setup=replace(training_setup, train=Noting(train.inputs, train.targets)))
    for _ in range(3):
        actual.quality(half(actual.structure), actual.structure)
    assert measured == [min(500, count)]


def test_a_candidate_with_overflowing_outputs_is_worse_than_all_others(inheritance):
    architecture = half(inheritance.structure)
    before = inheritance.quality(architecture, inheritance.structure)
    for own in inheritance.structure.graph.variables.values():
        for variable in own:
            variable.assign(np.full(variable.shape, 1e38))
    quality = inheritance.quality(architecture, inheritance.structure)
    assert np.isfinite(quality)
    assert quality < before
