"""Networks divided into segments, compared with the whole networks."""

import keras
import numpy as np
import pytest

from benchmarks.porting.support_matrix import architectures
from executors.structure import analyse, segments
from tests.executors.structure.architectures import FAMILIES, MOSTLY_SLOW_FAMILIES
from tests.executors.structure.networks import conv, outputs, randomised, same, unmasked

layers = keras.layers

#: One architecture for images and one for texts; `-m slow` tests all.
_SMALL = ("MobileNetV2", "BERT span")


def arrays_for(model):
    """Return random inputs for a model; token ids are below 2."""
    rng = np.random.default_rng(1)
    shapes = [((2, *tensor.shape[1:]), tensor.dtype) for tensor in model.inputs]
    return [
        rng.normal(size=shape).astype(dtype) if dtype == "float32" else rng.integers(0, 2, shape, dtype)
        for shape, dtype in shapes
    ]


def clone(name, layer):
    return type(layer).from_config({**layer.get_config(), "name": name})


def run_segments(parts, arrays):
    """Run the segments one after another, and return the outputs of the last one."""
    for part in parts:
        arrays = outputs(part.graph.build(clone, part.graph.weights), arrays)
    return arrays


def check(model, largest):
    structure = analyse(model)
    parts = segments(structure, largest)
    arrays = arrays_for(model)
    same(outputs(model, arrays), run_segments(parts, arrays))
    assert sum(part.params for part in parts) == structure.network().params
    for part in parts[1:]:
        assert len(part.graph.inputs) == 1
    for part in parts[:-1]:
        assert len(part.graph.outputs) == 1
    return parts


@pytest.mark.parametrize("largest", [0.0, 0.4])
@pytest.mark.parametrize("name", MOSTLY_SLOW_FAMILIES)
def test_the_segments_of_every_family_compute_the_same_as_the_network(name, largest):
    build, _ = FAMILIES[name]
    check(randomised(build(unmasked)), largest)


@pytest.mark.parametrize(
    "name",
    [name if name in _SMALL else pytest.param(name, marks=pytest.mark.slow) for name in architectures()],
)
def test_the_segments_of_every_supported_architecture_compute_the_same_as_the_network(name):
    assert len(check(randomised(architectures()[name]()), 0.1)) > 1


def names(parts):
    return [[node.name for node in part.graph.nodes] for part in parts]


def residual(depth=2):
    """Return a stem with padding and dropout, residual blocks, and a head."""
    inputs = keras.Input((8, 8, 3))
    x = layers.ZeroPadding2D(1, name="pad")(layers.Rescaling(0.5, name="scale")(inputs))
    x = layers.Dropout(0.1, name="drop")(conv(4, "stem")(x))
    for number in range(depth):
        y = conv(6, f"in_{number}")(x)
        y = layers.BatchNormalization(name=f"bn_{number}")(layers.Conv2D(4, 1, name=f"out_{number}")(y))
        x = layers.ReLU(name=f"relu_{number}")(layers.Add(name=f"add_{number}")([x, y]))
    return keras.Model(inputs, layers.Dense(5, name="head")(layers.GlobalAveragePooling2D(name="pool")(x)))


def test_no_segment_begins_with_a_fusible_layer_or_ends_with_padding():
    stem = ["scale", "pad", "stem", "stem_bn", "stem_relu", "drop"]
    blocks = [
        [f"in_{n}", f"in_{n}_bn", f"in_{n}_relu", f"out_{n}", f"bn_{n}", f"add_{n}", f"relu_{n}"]
        for n in (0, 1)
    ]
    parts = segments(analyse(residual()), 0.0)
    assert names(parts) == [stem, blocks[0], [*blocks[1], "pool"], ["head"]]
    assert [part.name for part in parts] == ["drop", "relu_0", "pool", "head"]


def test_a_batch_norm_that_cannot_be_folded_begins_a_segment():
    x = inputs = keras.Input((6, 6, 4))
    for number in range(2):
        y = layers.ReLU(name=f"relu_{number}")(layers.BatchNormalization(name=f"bn_{number}")(x))
        x = layers.Add(name=f"add_{number}")(
            [x, layers.Conv2D(4, 3, padding="same", name=f"conv_{number}")(y)]
        )
    parts = segments(analyse(keras.Model(inputs, x)), 0.0)
    assert names(parts) == [[f"{name}_{n}" for name in ("bn", "relu", "conv", "add")] for n in (0, 1)]


@pytest.mark.parametrize("largest", [0.1, 0.25, 0.5, 1.0])
def test_neighbouring_segments_are_merged_up_to_the_share(largest):
    model = keras.Sequential([keras.Input((5,)), *(layers.Dense(5, name=f"d{n}") for n in range(8))])
    expected = {0.1: [1] * 8, 0.25: [2] * 4, 0.5: [4, 4], 1.0: [8]}[largest]
    parts = segments(analyse(model), largest)
    assert [len(part.graph.nodes) for part in parts] == expected
    assert [part.params for part in parts] == [30 * count for count in expected]


def test_a_layer_called_again_is_not_split():
    inputs = keras.Input((5,))
    again = layers.Dense(5, name="again")
    x = again(layers.Dense(5, name="between")(again(layers.Dense(5, name="first")(inputs))))
    parts = segments(analyse(keras.Model(inputs, layers.Dense(2, name="last")(x))), 0.0)
    assert names(parts) == [["first"], ["again", "between", "again"], ["last"]]
