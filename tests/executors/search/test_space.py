"""The architectures that can be cut from a network."""

import keras
import numpy as np
import pytest

from executors.search import ArchitectureSpace
from executors.structure import analyse, at_resolution, freeze, narrow, remove_blocks, residual_blocks
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS, PARAMS, meets

layers = keras.layers


def residual():
    """Return a stem of 16 channels, two blocks with 24 inner units, and a head."""
    inputs = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(16, 3, padding="same", name="stem")(inputs)
    for number in (1, 2):
        y = layers.Conv2D(24, 3, padding="same", activation="relu", name=f"in_{number}")(x)
        y = layers.Conv2D(16, 3, padding="same", name=f"out_{number}")(y)
        x = layers.Add(name=f"sum_{number}")([x, y])
    return keras.Model(inputs, layers.Dense(5, name="head")(layers.GlobalAveragePooling2D()(x)))


@pytest.fixture(scope="module")
def structure():
    return analyse(residual())


@pytest.fixture
def space(structure):
    return ArchitectureSpace(structure, structure.widths, ())


#: Genes that keep the image size.
WHOLE = [1.0] * 4


def test_genes_encode_widths_in_halvings_blocks_and_image_sizes_in_eighths(structure):
    space = ArchitectureSpace(structure, {"stem": 8, "in_1": 24, "in_2": 12}, ())
    assert space.size == (3, 2 + 4)
    actual = space.architecture(np.array([-1.0, 0.5, -9.0, 1.0, 0.0, *WHOLE]))
    assert actual.widths == {"stem": 4, "in_1": 24, "in_2": 1}
    assert actual.removed_blocks == {"sum_2"}
    assert actual.scale == 1
    assert space.architecture(np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0])).scale == 0.75


def test_images_keep_their_size_if_the_network_depends_on_it():
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, name="only")(inputs)
    structure = analyse(keras.Model(inputs, layers.Dense(2)(layers.Flatten()(x))))
    assert ArchitectureSpace(structure, structure.widths, ()).size == (1, 0)


def test_images_are_not_made_smaller_than_the_network_allows():
    inputs = keras.Input((8, 8, 3))
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 6, name="only")(inputs))
    structure = analyse(keras.Model(inputs, layers.Dense(2)(x)))
    assert ArchitectureSpace(structure, structure.widths, ()).size == (1, 2)


def test_predicted_costs_are_those_of_the_cut_network(structure, space):
    architecture = space.architecture(np.array([-1.0, -0.4, 0.0, 1.0, 0.0, *WHOLE[:3], 0.0]))
    left = remove_blocks(
        structure, [block for block in residual_blocks(structure.graph) if block.name == "sum_2"]
    )
    left = at_resolution(left, 7 / 8)
    keep = {name: np.arange(group.size) < architecture.widths[name] for name, group in left.groups.items()}
    assert space.costs(architecture) == costs_of(analyse(narrow(left, keep)).network(), ())


@pytest.mark.parametrize("stays", [1.0, 0.0])
@pytest.mark.parametrize("limited", [{FLOPS: 0.4}, {FLOPS: 0.9, PARAMS: 0.3}])
def test_fitted_genes_are_the_largest_within_the_limits_at_the_same_proportions(
    space, structure, stays, limited
):
    whole = costs_of(structure.network(), ())
    limits = {axis: share * whole[axis] for axis, share in limited.items()}
    genes = np.array([0.3, -0.5, -0.2, 1.0, stays, *WHOLE])
    fitted = space.fitted(genes, limits)
    assert meets(space.costs(space.architecture(fitted)), limits)
    more = np.concatenate([np.minimum(fitted[:3] + 0.15, 0), fitted[3:]])
    assert not meets(space.costs(space.architecture(more)), limits) or (fitted[:3] == 0).all()
    free = fitted[:3] < 0
    np.testing.assert_allclose(np.diff(fitted[:3][free]), np.diff(genes[:3][free]), atol=1e-9)
    assert fitted[3:].tolist() == [1.0, stays, *WHOLE]


@pytest.mark.parametrize(
    ("depth", "stay"), [(0, [0.0, 0.0]), (1, [1.0, 0.0]), (2, [1.0, 1.0]), (3, [1.0, 1.0])]
)
def test_the_requested_number_of_blocks_is_kept(space, structure, depth, stay):
    limits = {FLOPS: 0.5 * structure.network().flops}
    genes = np.array([-1.0, -1.0, -1.0, 0.0, 0.0, *WHOLE])
    assert space.fitted(genes, limits, depth)[3:5].tolist() == stay
    assert genes[3:5].tolist() == [0.0, 0.0]


@pytest.fixture
def frozen():
    """Return the structure of the network with frozen stem and first block."""
    model = residual()
    freeze(model, ["stem", "in_1", "out_1", "sum_1"])
    return analyse(model)


def test_frozen_layers_keep_their_image_size_and_blocks(frozen):
    space = ArchitectureSpace(frozen, frozen.widths, ())
    assert list(frozen.groups) == ["in_2"]
    assert list(space.blocks) == ["sum_2"]
    assert space.size == (1, 1)
    assert set(space.structure(space.architecture(space.least)).graph.layers) >= {"in_1", "out_1", "sum_1"}


@pytest.mark.parametrize(("depth", "stays"), [(0, 0.0), (1, 0.0), (2, 1.0)])
def test_frozen_blocks_count_among_those_that_are_kept(frozen, depth, stays):
    space = ArchitectureSpace(frozen, frozen.widths, ())
    limits = {FLOPS: frozen.network().flops}
    assert space.fitted(np.array([0.0, 0.0]), limits, depth)[1:].tolist() == [stays]


def test_limits_that_no_widths_can_meet_have_no_solution(space):
    assert space.fitted(np.array([0.0, 0.0, 0.0, 1.0, 1.0, *WHOLE]), {FLOPS: 100.0}) is None
    assert set(space.architecture(space.least).widths.values()) == {1}
    assert space.architecture(space.least).removed_blocks == {"sum_1", "sum_2"}
    assert space.architecture(space.least).scale == 0.5
