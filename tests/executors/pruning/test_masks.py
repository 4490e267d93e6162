"""Masked networks compute what the narrowed ones do, under norms as well."""

from functools import partial

import keras
import pytest

from executors.pruning.masked_norms import with_masked_norms
from executors.pruning.masks import Masks
from executors.structure import analyse, copied, narrow
from tests.executors.structure.networks import alternate, batch, outputs, randomised, same

layers = keras.layers
WIDTH = 12


@pytest.mark.parametrize(
    "norm",
    [
        layers.LayerNormalization,
        partial(layers.LayerNormalization, center=False, scale=False),
        partial(layers.LayerNormalization, rms_scaling=True),
        layers.RMSNormalization,
        partial(layers.GroupNormalization, 3),
        partial(layers.GroupNormalization, 1),
        partial(layers.GroupNormalization, -1),
        partial(layers.GroupNormalization, 3, center=False, scale=False),
    ],
)
@pytest.mark.filterwarnings("ignore:You passed `rms_scaling")
def test_a_masked_network_computes_what_the_narrowed_one_does(norm) -> None:
    """The second norm reads two groups, or parts of them."""
    inputs = keras.Input((4, 6))
    x = norm()(layers.Dense(WIDTH, name="hidden")(inputs))
    x = norm()(layers.Concatenate()([x, layers.Dense(WIDTH // 2, name="other")(inputs)]))
    model = randomised(keras.Model(inputs, layers.Dense(2, name="out")(x)))
    masked = with_masked_norms(copied(model))
    structure, arrays = analyse(masked), batch(model)
    same(outputs(model, arrays), outputs(masked, arrays))
    keep = {name: alternate(group.size, at) for at, (name, group) in enumerate(structure.groups.items())}
    Masks(structure).set(keep)
    narrowed = narrow(structure, keep)
    assert [type(layer) for layer in narrowed.layers] == [type(layer) for layer in model.layers]
    same(outputs(narrowed, arrays), outputs(masked, arrays))


def test_a_network_without_such_norms_stays_as_it_is() -> None:
    inputs = keras.Input((4, 6))
    model = keras.Model(inputs, layers.Dense(2)(layers.BatchNormalization()(layers.Dense(4)(inputs))))
    assert with_masked_norms(model) is model
