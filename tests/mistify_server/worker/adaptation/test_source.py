"""The source, widened as goals ask for it."""

import keras
import pytest

from executors.structure import analyse
from mistify.costs.budget import FLOPS
from mistify_server.worker.adaptation.source import expanded

layers = keras.layers


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
