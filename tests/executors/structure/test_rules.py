"""Rules by name patterns: layers that are not changed, or keep a minimum of channels."""

import keras
import numpy as np
import pytest

from executors.search import ArchitectureSpace
from executors.structure import (
    analyse,
    at_resolution,
    narrow,
    removable_blocks,
    remove_blocks,
    unmatched,
    widen,
    widened,
)
from mistify.config.layers import LayerRule

layers = keras.layers
KEEP = LayerRule()


def network() -> keras.Model:
    """Return a network with two residual blocks and a concatenation."""
    image = keras.Input((8, 8, 3), name="image")
    x = stream = layers.Conv2D(8, 3, padding="same", name="stem")(image)
    for number in (1, 2):
        x = layers.Conv2D(12, 3, padding="same", name=f"block{number}_expand")(stream)
        x = layers.ReLU(name=f"block{number}_relu")(x)
        x = layers.Conv2D(8, 3, padding="same", name=f"block{number}_project")(x)
        stream = layers.Add(name=f"block{number}_add")([stream, x])
    wide = layers.Conv2D(16, 1, name="wide")(stream)
    small = layers.Conv2D(4, 1, name="small")(stream)
    x = layers.Concatenate(name="both")([wide, small])
    x = layers.GlobalAveragePooling2D(name="pooled")(x)
    return keras.Model(image, layers.Dense(5, name="digit")(x))


def least(**rules: LayerRule) -> dict[str, int]:
    """Return the minimum number of units of each group under rules."""
    return analyse(network(), rules).least_widths


def test_without_rules_one_unit_of_each_group_is_kept() -> None:
    assert least() == dict.fromkeys(["stem", "block1_expand", "block2_expand", "wide", "small"], 1)


def test_a_kept_layer_keeps_its_whole_group() -> None:
    """The rule covers the layer's inputs and outputs, even for a layer without weights."""
    assert least(block1_expand=KEEP).keys() == {"block2_expand", "wide", "small"}
    assert least(block1_add=KEEP).keys() == {"block1_expand", "block2_expand", "wide", "small"}
    assert least(**{"block?_relu": KEEP}).keys() == {"stem", "wide", "small"}
    assert least(**{"*": KEEP}) == {}


def test_a_layer_keeps_its_minimum_of_channels() -> None:
    assert least(block1_project=LayerRule(5))["stem"] == 5
    assert least(wide=LayerRule(3), **{"w*": LayerRule(7)})["wide"] == 7
    assert least(wide=LayerRule(100))["wide"] == 16


def test_several_groups_of_one_layer_keep_the_minimum_together() -> None:
    groups = least(both=LayerRule(10))
    assert (groups["wide"], groups["small"]) == (8, 2)
    assert least(digit=LayerRule(3))["wide"] == 1


@pytest.mark.parametrize(
    ("pattern", "rule", "removable"),
    [
        ("block2_expand", LayerRule(2), ["block1_add"]),
        ("block1_relu", KEEP, ["block2_add"]),
        ("block1_add", KEEP, ["block2_add"]),
        ("wide", KEEP, ["block1_add", "block2_add"]),
        ("block*", LayerRule(1), []),
    ],
)
def test_a_block_that_contains_a_layer_of_a_rule_is_kept(
    pattern: str, rule: LayerRule, removable: list[str]
) -> None:
    structure = analyse(network(), {pattern: rule})
    assert [block.name for block in removable_blocks(structure)] == removable
    assert list(ArchitectureSpace(structure, structure.widths, ()).blocks) == removable


def test_images_keep_their_size_for_a_kept_layer() -> None:
    assert at_resolution(analyse(network()), 0.5) is not None

    def images(rule: LayerRule) -> int:
        structure = analyse(network(), {"wide": rule})
        space = ArchitectureSpace(structure, structure.widths, ())
        return space.size[1] - len(space.blocks)

    assert (images(KEEP), images(LayerRule(4))) == (0, 4)


def test_rules_also_apply_to_networks_derived_from_a_network() -> None:
    rules = {"stem": LayerRule(6), "wide": LayerRule(9)}
    structure = analyse(network(), rules)
    smaller = at_resolution(structure, 0.5)
    assert smaller is not None
    least = remove_blocks(smaller, removable_blocks(smaller))
    assert least.least_widths == {"stem": 6, "wide": 9, "small": 1}
    assert least.staying == {"stem", "wide"}
    model = narrow(least, {name: np.arange(group.size) < group.least for name, group in least.groups.items()})
    assert model.get_layer("wide").kernel.shape == (1, 1, 6, 9)
    assert analyse(model, rules).least_widths == {"stem": 6, "wide": 9, "small": 1}


def test_a_kept_layer_is_not_widened() -> None:
    structure = analyse(network(), {"wide": KEEP})
    assert "wide" not in widened(structure, 2.0)
    wide = widen(structure, 2.0)
    assert wide.get_layer("wide").filters == 16
    assert wide.get_layer("small").filters == 8


@pytest.mark.parametrize(
    ("pattern", "fix"),
    [
        ("stme", "did you mean stem"),
        ("block1_exapnd", "did you mean block1_expand"),
        ("blok*", "did you mean block1_expand, block1_relu"),
        ("*_rellu", "did you mean block1_relu, block2_relu"),
        ("zzzz", "its layers are stem, block1_expand"),
        ("*qq*", "its layers are stem"),
    ],
)
def test_the_error_for_a_pattern_without_a_match_suggests_similar_layers(pattern: str, fix: str) -> None:
    names = analyse(network()).graph.layers
    (wrong,) = unmatched({pattern: KEEP, "st*": KEEP}, names)
    assert wrong.value == pattern
    assert wrong.fix.startswith(fix)


def test_inner_widths_of_a_kept_layer_are_kept() -> None:
    """For example the heads of attention, which do not appear as channels of a tensor."""
    tokens = keras.Input((5, 8), name="tokens")
    x = layers.MultiHeadAttention(2, 4, name="attention")(tokens, tokens)
    model = keras.Model(tokens, layers.Dense(3, name="kind")(x))
    inside = {"attention", "attention#2", "attention#3"}
    assert not inside.isdisjoint(analyse(model).groups)
    assert inside.isdisjoint(analyse(model, {"attention": KEEP}).groups)
