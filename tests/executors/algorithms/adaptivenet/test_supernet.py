"""A supernet: the outputs of its subnets, and the weights that training changes."""

import re
from itertools import cycle

import keras
import numpy as np
import pytest

from executors.algorithms.adaptivenet.block_distillation import BlockDistillation
from executors.algorithms.adaptivenet.params import VARIANTS, AdaptiveNetParams
from executors.algorithms.adaptivenet.single_path import SinglePathObjective
from executors.algorithms.adaptivenet.supernet import Supernet
from executors.algorithms.adaptivenet.variants import Merged
from executors.contract.params import parse_params
from executors.structure import analyse, copied, model_of, narrow
from executors.training.evaluation import Evaluation
from executors.training.trainer import Trainer, constant
from mistify.config.layers import LayerRule
from mistify.errors import ErrorCode, MistifyError
from tests.executors.algorithms.adaptivenet.conftest import PARAMS
from tests.support.plug_ins import installed


@pytest.fixture(scope="module")
def supernet(deep, digits):
    return Supernet.expanded(analyse(deep), PARAMS, digits[0])


@pytest.fixture
def inputs(digits):
    return digits[1].subset(np.arange(100)).inputs


def subnets(space, count=12):
    rng = np.random.default_rng(4)
    return [space.original, *(space.with_one(n) for n in range(space.blocks, len(space.places)))] + [
        space.random(rng) for _ in range(count)
    ]


def test_a_supernet_has_cheaper_variants_of_the_inner_blocks(supernet, deep):
    space = supernet.space
    assert [place.name for place in space.places[space.blocks :]] == [
        *(f"block-0{start}-merge-2" for start in (1, 2, 3, 4)),
        *(f"block-0{start}-shrink-0.5" for start in (1, 2, 3, 4, 5)),
    ]
    whole = analyse(deep).network().flops
    for number in range(space.blocks, len(space.places)):
        model = model_of(supernet.graph(space.with_one(number)))
        assert model.output_shape == deep.output_shape
        assert analyse(model).network().flops < whole


def test_the_original_subnet_equals_the_network(supernet, deep, inputs):
    own = supernet.predictions(inputs, supernet.space.original)
    np.testing.assert_allclose(own["digit"], deep(inputs["image"]), atol=1e-5)


@pytest.mark.slow
def test_a_subnet_is_recognised_by_its_layers(supernet):
    for subnet in subnets(supernet.space):
        assert supernet.subnet_of(copied(model_of(supernet.graph(subnet)))) == subnet


def test_a_network_cut_in_width_is_not_a_subnet(supernet):
    structure = analyse(model_of(supernet.graph(supernet.space.original)))
    name, group = next(iter(structure.groups.items()))
    assert supernet.subnet_of(narrow(structure, {name: np.arange(group.size) > 0})) is None


@pytest.mark.slow
def test_a_path_gives_the_outputs_of_its_subnet(supernet, inputs):
    for subnet in subnets(supernet.space):
        outputs = Evaluation(model_of(supernet.graph(subnet))).outputs(inputs)
        np.testing.assert_allclose(supernet.predictions(inputs, subnet)["digit"], outputs["digit"], atol=1e-5)


def test_each_variant_alone_gives_the_outputs_of_its_subnet(supernet, inputs, monkeypatch):
    space = supernet.space
    variants = range(space.blocks, len(space.places))
    monkeypatch.setattr(supernet, "_at_once", 120)  # several batches of 26, the last one of 22
    alone = supernet.predictions_alone(inputs)
    assert len(alone) == len(variants)
    for number, outputs in zip(variants, alone, strict=True):
        expected = supernet.predictions(inputs, space.with_one(number))["digit"]
        assert outputs["digit"].shape == expected.shape
        np.testing.assert_allclose(outputs["digit"], expected, atol=1e-5)
    assert not np.allclose(alone[0]["digit"], alone[-1]["digit"], atol=1e-3)


def test_a_supernet_survives_saving(supernet, deep, inputs):
    loaded, losses = Supernet.loaded(supernet.saved([0.5, 1.5]), analyse(deep), PARAMS.largest)
    assert losses == [0.5, 1.5]
    assert loaded.space == supernet.space
    for subnet in subnets(supernet.space, 3):
        np.testing.assert_array_equal(
            loaded.predictions(inputs, subnet)["digit"], supernet.predictions(inputs, subnet)["digit"]
        )
    assert loaded.saved(losses) == supernet.saved(losses)


@pytest.mark.slow
def test_feature_distillation_trains_each_variant_to_imitate_the_replaced_blocks(deep, deep_setup, digits):
    supernet = Supernet.expanded(analyse(deep), PARAMS, digits[0])
    trainer = Trainer(supernet.model, deep_setup, 0, objective=BlockDistillation(supernet, deep_setup))
    first = trainer.train(constant(10) * 0)
    trainer.train(constant(60))
    assert trainer.train(constant(10) * 0) < 0.7 * first
    assert len(trainer.model.trainable_variables) == len(trainer.optimizer_state().arrays["momentums"])


@pytest.mark.slow
def test_training_on_paths_does_not_change_unused_variants(deep, deep_setup, digits):
    supernet = Supernet.expanded(analyse(deep), PARAMS, digits[0])
    for layer in supernet.model.layers:
        layer.trainable = "batch_norm" not in layer.name
    space = supernet.space
    taken = [space.with_one(number) for number in (space.blocks, space.blocks + 6)]
    turns = cycle(taken)
    objective = SinglePathObjective(supernet, lambda _: next(turns), deep, deep_setup, 0)
    before = [[weight.numpy() for weight in weights] for weights in supernet.variables]
    trainer = Trainer(supernet.model, deep_setup, 0, objective=objective)
    trainer.train(constant(6))
    for number, (old, new) in enumerate(zip(before, supernet.variables, strict=True)):
        same = [np.array_equal(one, other.numpy()) for one, other in zip(old, new, strict=True)]
        assert all(same) == (number not in (0, 6))


def test_kept_layers_are_in_no_replaced_block(deep, digits):
    kept = [layer.name for layer in deep.layers if isinstance(layer, keras.layers.Add)][1]
    rules = {kept: LayerRule()}
    supernet = Supernet.expanded(analyse(deep, rules), PARAMS, digits[0])
    names = [place.name for place in supernet.space.places[supernet.space.blocks :]]
    assert "block-02-shrink-0.5" not in names
    assert "block-01-merge-2" not in names
    assert "block-03-shrink-0.5" in names
    for subnet in subnets(supernet.space, 5):
        assert kept in [node.name for node in supernet.graph(subnet).nodes]


def test_blocks_without_inner_channels_are_narrowed_between_each_other(digits):
    """Each convolution is a block: channels between two of them are cut, and both are fitted."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1), name="image")
    x = inputs
    for _ in range(4):
        x = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(x)
    outputs = keras.layers.Dense(10, name="digit")(keras.layers.GlobalAveragePooling2D()(x))
    source = analyse(keras.Model(inputs, outputs))
    params = AdaptiveNetParams(largest=0.05, merge=(), shrink=(0.5,))
    supernet = Supernet.expanded(source, params, digits[0])
    space = supernet.space
    assert [place.name for place in space.places[space.blocks :]] == [
        "block-01-shrink-2-0.5",
        "block-02-shrink-2-0.5",
        "block-01-shrink-3-0.5",
    ]
    costs = supernet.multiply_adds()
    assert costs[space.blocks] == pytest.approx((costs[1] + costs[2]) / 2, rel=0.01)
    # The second of three convolutions in a row has half of its inputs and outputs.
    assert costs[space.blocks + 2] == pytest.approx((costs[1] + costs[2] / 2 + costs[3]) / 2, rel=0.01)
    images = digits[1].inputs
    wanted = Evaluation(model_of(source.graph)).outputs(images)["digit"]
    for narrowed in (space.blocks, space.blocks + 2):
        outputs = supernet.predictions(images, space.with_one(narrowed))["digit"]
        assert np.mean((outputs - wanted) ** 2) < 0.1 * np.var(wanted)


def test_blocks_of_several_shapes_are_not_merged(deep, digits):
    supernet = Supernet.expanded(analyse(deep), PARAMS, digits[0])
    blocks = [analyse(model_of(graph)) for graph in map(supernet.graph_of, supernet.space.original)]
    stride, wide = blocks[4], blocks[0]
    assert Merged().make((wide, stride), 2, digits[0]) is None


def test_an_unknown_kind_of_variant_is_refused_with_the_known_kinds():
    with pytest.raises(
        MistifyError, match=r"variants.*got \"factored\".*merge, noise, resolution, separable, shrink"
    ):
        parse_params(AdaptiveNetParams, {"variants": {"factored": [0.5]}})


def test_an_amount_that_the_plug_in_cannot_use_is_refused(tmp_path, monkeypatch, deep, digits):
    code = """
from executors.algorithms.adaptivenet.variants import VariantMaker
class Odd(VariantMaker):
    def span(self, amount):
        raise ValueError("an even number")
    def make(self, blocks, amount, features):
        return None
"""
    points = {"odd": "odd_variants:Odd"}
    monkeypatch.syspath_prepend(installed(tmp_path, "odd_variants", code, points, VARIANTS))
    params = parse_params(AdaptiveNetParams, {"variants": {"odd": [3]}})
    with pytest.raises(MistifyError, match=r"variants\.odd.*got 3; expected an even number") as caught:
        Supernet.expanded(analyse(deep), params, digits[0])
    assert caught.value.code is ErrorCode.INVALID_CONFIG


MAKERS = """
import keras
from executors.algorithms.adaptivenet.variants import VariantMaker
from executors.structure import analyse
class Wide(VariantMaker):
    def span(self, amount):
        return 1
    def make(self, blocks, amount, features):
        inputs = keras.Input(next(iter(features.inputs.values())).shape[1:])
        return analyse(keras.Model(inputs, keras.layers.Conv2D(int(amount), 1, padding="same")(inputs))).graph
class Broken(Wide):
    def make(self, blocks, amount, features):
        raise KeyError("stride")
class Undefined(Wide):
    def make(self, blocks, amount, features):
        graph = super().make(blocks, amount, features)
        for layer in graph.layers.values():
            layer.set_weights([weight * float("nan") for weight in layer.get_weights()])
        return graph
"""


@pytest.fixture
def makers(tmp_path, monkeypatch):
    points = {"wide": "unfit_variants:Wide", "broken": "unfit_variants:Broken"}
    points["undefined"] = "unfit_variants:Undefined"
    monkeypatch.syspath_prepend(installed(tmp_path, "unfit_variants", MAKERS, points, VARIANTS))


@pytest.mark.usefixtures("makers")
def test_unsuitable_variants_are_left_out_by_name(deep, digits):
    """A convolution with 8 channels only fits some of the blocks."""
    own = {
        "variants": {"wide": [8], "broken": [1], "undefined": [8]},
        "merge": [2],
        "shrink": [],
        "largest": 0.05,
    }
    supernet = Supernet.expanded(analyse(deep), parse_params(AdaptiveNetParams, own), digits[0])
    names = [place.name for place in supernet.space.places[supernet.space.blocks :]]
    assert [name for name in names if "wide" in name] == [
        "block-01-wide-8",
        "block-02-wide-8",
        "block-03-wide-8",
    ]
    assert "block-01-merge-2" in names
    wide, *_ = (reason for reason in supernet.unfit if "wide" in reason)
    assert wide == (
        "block-04-wide-8 writes [8, 8, 8] of float32; expected [4, 4, 16] of float32, as the original does"
    )
    assert "block-01-broken-1 could not be made: KeyError: 'stride'" in supernet.unfit
    (undefined, *_) = (reason for reason in supernet.unfit if reason.startswith("block-01-undefined-8 "))
    assert re.search(r"weights in conv2d\S* that are not finite", undefined)
    again = Supernet.loaded(supernet.saved([0.0] * len(supernet.space.places)), analyse(deep), 0.05).supernet
    assert again.unfit == supernet.unfit


@pytest.mark.usefixtures("makers")
def test_a_supernet_without_suitable_variants_is_refused(deep, digits):
    own = {"variants": {"broken": [1]}, "merge": [], "shrink": [], "largest": 0.05}
    with pytest.raises(MistifyError, match="no variant of any block fits") as caught:
        Supernet.expanded(analyse(deep), parse_params(AdaptiveNetParams, own), digits[0])
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert "block-01-broken-1" in caught.value.problems[0].value
