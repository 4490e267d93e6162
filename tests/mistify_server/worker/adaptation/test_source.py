"""The source, widened as goals ask for it."""

import keras
import numpy as np
import pytest

from executors.data import Dataset, split
from executors.structure import analyse
from executors.training.setup import TrainingParams, TrainingSetup
from mistify.costs.budget import FLOPS
from mistify_server.worker.adaptation.source import expanded, tuned_source

layers = keras.layers
SEED = 5


def linear():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8,), name="x")
    return keras.Model(inputs, layers.Dense(3, "softmax", name="y")(inputs))


def labelled(source, held_out_is_known):
    """Return training data that the source gets wrong, all or but for the part that is held out."""
    x = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    known = source.predict(x, verbose=0).argmax(axis=1)
    numbers = Dataset({"row": np.arange(len(x))}, {})
    _, held_out = split(numbers, TrainingSetup(numbers, numbers, None, PARAMS).settings.validation, SEED)
    classes = (known + 1) % 3
    if held_out_is_known:
        classes[held_out.inputs["row"]] = known[held_out.inputs["row"]]
    return Dataset({"x": x}, {"y": classes})


PARAMS = TrainingParams(batch_size=32, learning_rate=0.1, distillation=0.0)


@pytest.mark.parametrize("held_out_is_known", [True, False])
def test_a_tuned_source_is_kept_if_it_is_better_on_data_held_out_of_training(held_out_is_known):
    """It always becomes better on the data that it is trained on."""
    source = linear()
    data = labelled(source, held_out_is_known)
    tuned = tuned_source(source, TrainingSetup(data, data, None, PARAMS), 200, SEED, lambda steps: None)
    assert (tuned is source) == held_out_is_known


def test_a_source_that_is_not_tuned_is_the_root_as_it_is():
    source = linear()
    data = labelled(source, False)
    assert (
        tuned_source(source, TrainingSetup(data, data, None, PARAMS), 0, SEED, lambda steps: None) is source
    )


def beside_a_norm():
    """A hidden layer that is normalised beside the inputs, and so cannot grow, and one that can."""
    inputs = keras.Input((8,))
    stays = layers.Dense(16, name="stays")(inputs)
    stays = layers.LayerNormalization()(layers.Concatenate()([inputs, stays]))
    grows = layers.Dense(16, name="grows")(inputs)
    return keras.Model(inputs, layers.Dense(4)(layers.Concatenate()([stays, grows])))


@pytest.mark.parametrize("share", [1.0, 1.1, 1.25])
def test_what_every_cost_has_to_exceed_is_reached_by_groups_that_can_grow(share):
    structure = analyse(beside_a_norm())
    limit = share * structure.network().flops
    wide = analyse(expanded(structure, {FLOPS: limit}, (), 0))
    assert wide.widths["stays"] == 16
    assert limit <= wide.network().flops < limit + 2 * (8 + 4)
