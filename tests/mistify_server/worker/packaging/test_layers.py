"""The layers of a network before and after cutting, compared with Keras."""

from dataclasses import replace

import keras
import numpy as np
import pytest

from executors.structure import analyse, narrow, remove_named_blocks
from executors.structure.reading.reader import copied
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import NominalProfile, by_name
from mistify.costs.quantization import Quantization
from mistify_server.worker.packaging.layers import layer_table, profile_of
from tests.mistify_server.recipes import by_recipe
from tests.mistify_server.worker.packaging.networks import PI, network, package_task

layers = keras.layers

#: A profile without overhead per inference.
PROFILE = NominalProfile("paper", 1.0, 1.0)


@pytest.fixture(scope="module")
def source() -> keras.Model:
    return network(width=6)


@pytest.fixture(scope="module")
def cut(source: keras.Model) -> keras.Model:
    structure = analyse(source)
    return narrow(structure, {name: np.arange(group.size) < 4 for name, group in structure.groups.items()})


def test_every_layer_has_the_width_reported_by_keras(source: keras.Model, cut: keras.Model) -> None:
    table = layer_table(analyse(source), analyse(cut), PROFILE)
    assert table.hardware == "paper"
    for line in table.layers:
        assert line.before is not None
        assert line.after is not None
        assert line.before.width == source.get_layer(line.name).output.shape[-1]
        assert line.after.width == cut.get_layer(line.name).output.shape[-1]
        assert line.kind == type(source.get_layer(line.name)).__name__
    kinds = [line.kind for line in table.layers]
    assert kinds == ["Conv2D", "DepthwiseConv2D", "Conv2D", "Add", "GlobalAveragePooling2D", "Dense"]
    stem, depthwise, point, total, _, scores = table.layers
    # The residual connection ties all convolutions into one group; classes cannot be cut.
    assert stem.groups == depthwise.groups == point.groups == total.groups == (stem.name,)
    assert (scores.groups, scores.after and scores.after.width) == ((), 3)


def test_costs_of_layers_add_up_to_those_of_the_network(source: keras.Model, cut: keras.Model) -> None:
    """Batch norms count for the layers that they are folded into."""
    table = layer_table(analyse(source), analyse(cut), PROFILE)
    for model, figures in (
        (source, [line.before for line in table.layers if line.before]),
        (cut, [line.after for line in table.layers if line.after]),
    ):
        cost = analyse(model).network()
        assert sum(each.params for each in figures) == model.count_params()
        assert sum(each.multiply_adds for each in figures) == cost.flops
        assert sum(each.milliseconds for each in figures) == pytest.approx(PROFILE.latency_ms(cost))
    stem = table.layers[0].before
    assert stem is not None
    assert stem.params == 3 * 3 * 2 * 6 + 6 + 4 * 6
    assert stem.multiply_adds == 8 * 8 * 3 * 3 * 2 * 6


def test_the_overhead_of_an_inference_belongs_to_no_layer(source: keras.Model) -> None:
    table = layer_table(analyse(source), analyse(source), HOST)
    taken = sum(line.after.milliseconds for line in table.layers if line.after)
    assert HOST.efficiency is not None
    cost = analyse(source).network()
    assert taken == pytest.approx(HOST.latency_ms(cost) - HOST.efficiency.inference_us / 1e3)


def test_removed_layers_are_listed_at_their_places(source: keras.Model) -> None:
    structure = analyse(source)
    block = next(layer.name for layer in source.layers if isinstance(layer, layers.Add))
    shallow = remove_named_blocks(structure, [block])
    assert shallow is not structure
    table = layer_table(structure, shallow, PROFILE)
    assert [line.kind for line in table.layers if line.after is None] == ["DepthwiseConv2D", "Conv2D", "Add"]
    assert [line.name for line in table.layers] == [
        line.name for line in layer_table(structure, structure, PROFILE).layers
    ]
    added = layer_table(shallow, structure, PROFILE)
    assert [line.kind for line in added.layers] == [line.kind for line in table.layers]
    assert [line.kind for line in added.layers if line.before is None] == ["DepthwiseConv2D", "Conv2D", "Add"]


def test_a_layer_called_twice_is_listed_once() -> None:
    inputs = keras.Input((4,))
    shared = layers.Dense(4, name="shared")
    model = keras.Model(inputs, layers.Dense(2, name="scores")(shared(shared(inputs))))
    table = layer_table(analyse(model), analyse(copied(model)), PROFILE)
    assert [line.name for line in table.layers] == ["shared", "scores"]
    first = table.layers[0].after
    assert first is not None
    assert (first.params, first.multiply_adds) == (20, 32)


@pytest.mark.parametrize(
    ("limited", "precision", "expected"),
    [
        ("flops", Quantization.NONE, "host"),
        ("latency_ms@pi", Quantization.NONE, "pi"),
        ("latency_ms@host@int8", Quantization.INT8, "host@int8"),
        ("flops", Quantization.INT8, "host@int8"),
        ("size_bytes@int8", Quantization.INT8, "host@int8"),
    ],
)
def test_times_are_for_the_hardware_of_the_limit(
    limited: str, precision: Quantization, expected: str
) -> None:
    task = package_task(budget={limited: 1.0}, quantization=QuantizationConfig(precision=precision))
    hardware = by_name([HOST, PI, replace(HOST, name="host@int8")])
    assert profile_of(by_recipe(task, hardware=hardware)).name == expected
    assert profile_of(by_recipe(task, hardware={})) is HOST
