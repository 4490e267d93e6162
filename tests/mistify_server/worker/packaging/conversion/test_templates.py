"""Networks written into templates, compared with their own conversions."""

from collections.abc import Callable
from functools import cache

import keras
import numpy as np
import pytest

from executors.sources.keras.builtin import builtin_source
from executors.structure import Structure, analyse, model_of, narrow, remove_blocks, residual_blocks, widen
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.tflite.session import Session
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.conversion.template import ConversionTemplate
from mistify_server.worker.packaging.conversion.template_making import NoTemplateError, make_template
from mistify_server.worker.packaging.conversion.templates import ConversionTemplates
from mistify_server.worker.packaging.tflite.flatbuffer import operators
from mistify_server.worker.packaging.tflite.runner import signatures
from tests.executors.structure.networks import randomised
from tests.mistify.tflite.networks_to_slice import convolutional, feed_forward

layers = keras.layers

PRECISIONS = (Quantization.NONE, Quantization.FLOAT16, Quantization.DYNAMIC)
FLOAT32 = QuantizationConfig()

#: The largest difference from the converted network, as a share of the largest output.
TOLERANCE = 5e-7


def digits() -> keras.Model:
    """Residual blocks with projections, batch norms, a dense layer behind a mean."""
    return builtin_source("digits-resnet")


def unusual() -> keras.Model:
    """Norms that cannot be folded, statistics of data, a layer without a bias, PReLU, two outputs."""
    image = keras.Input((8, 8, 2), name="image")
    x = layers.Normalization(mean=[0.4, 0.6], variance=[0.2, 0.3])(image)
    x = layers.Conv2D(24, 3, padding="same", name="stem")(x)
    x = layers.BatchNormalization(name="behind")(layers.PReLU(shared_axes=[1, 2])(x))
    y = layers.Conv2D(30, 3, padding="same", use_bias=False, activation="silu", name="inner")(x)
    x = layers.Concatenate()([layers.SeparableConv2D(18, 3, padding="same", name="apart")(y), y])
    x = layers.Conv2DTranspose(20, 2, strides=2, name="up")(layers.MaxPooling2D()(x))
    x = layers.LayerNormalization()(layers.GlobalAveragePooling2D()(x))
    x = layers.Dense(33, "tanh", use_bias=False, name="hidden")(x)
    return keras.Model(image, [layers.Dense(3, "softmax", name="a")(x), layers.Dense(1, name="b")(x)])


def attentive() -> keras.Model:
    """Attention over eight steps, whose heads and their channels are groups."""
    steps = keras.Input((8, 6), name="steps")
    x = layers.Dense(12, name="embed")(steps)
    y = layers.MultiHeadAttention(4, 3, name="heads")(x, x)
    x = layers.LayerNormalization()(layers.Add()([x, y]))
    return keras.Model(steps, layers.Dense(3, name="scores")(layers.GlobalAveragePooling1D()(x)))


NETWORKS = (digits, convolutional, feed_forward, unusual, attentive)


def goal(structure: Structure, share: float, seed: int) -> keras.Model:
    """A narrower network with other weights, with at least two units of each group.

    For a single head of attention, the converter leaves out an axis.
    """
    rng = np.random.default_rng(seed)
    keep = {}
    for name, size in structure.widths.items():
        kept = max(2, round(size * rng.uniform(0.7, 1.3) * share))
        keep[name] = rng.permutation(size) < min(size, kept)
    return randomised(narrow(structure, keep), seed)


def examples(model: keras.Model, count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(count)
    return {
        tensor.name: rng.normal(size=(count, *tensor.shape[1:])).astype(np.float32) for tensor in model.inputs
    }


@cache
def source(make: Callable[[], keras.Model]) -> Structure:
    return analyse(randomised(make()))


@cache
def template(make: Callable[[], keras.Model], precision: Quantization) -> ConversionTemplate:
    return make_template(source(make), QuantizationConfig(precision=precision))


def assert_converted(network: bytes, model: keras.Model, precision: Quantization) -> None:
    """Assert that a network is the one that conversion makes."""
    expected = convert(model, QuantizationConfig(precision=precision))
    assert operators_of(network) == operators_of(expected)
    assert signatures(network) == signatures(expected)
    for count in (1, 5):
        inputs = examples(model, count)
        actual, wanted = (Session(one, threads=1)(inputs) for one in (network, expected))
        assert actual.keys() == wanted.keys()
        for name, output in wanted.items():
            assert np.any(output)
            assert np.abs(actual[name] - output).max() <= TOLERANCE * np.abs(output).max(), name


def operators_of(network: bytes) -> list[object]:
    """The operators of a network, with the types and shapes of what they read and write."""
    return [
        (one.name, [(tensor.type, tensor.shape) for tensor in (*one.inputs, *one.outputs)])
        for one in operators(network)
    ]


@pytest.mark.sampled
@pytest.mark.parametrize("make", NETWORKS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_network_written_into_a_template_is_the_one_that_conversion_makes(precision, make):
    structure = source(make)
    for seed, share in enumerate((0.8, 0.3)):
        model = goal(structure, share, seed)
        network = template(make, precision).written(analyse(model))
        assert network is not None
        assert_converted(network, model, precision)


def test_a_wider_network_is_written_as_well():
    model = randomised(widen(source(digits), 1.5), 3)
    assert_converted(template(digits, Quantization.NONE).written(analyse(model)), model, Quantization.NONE)


@pytest.mark.slow
def test_kernels_that_grow_beyond_the_limit_of_integers_need_the_converter():
    structure = source(convolutional)
    model = randomised(widen(structure, 4), 3)
    assert template(convolutional, Quantization.DYNAMIC).written(analyse(model)) is None


def rescaled() -> keras.Model:
    """A network whose first bias the converter computes from a kernel and a constant."""
    image = keras.Input((6, 6, 2), name="image")
    x = layers.Conv2D(5, 3, name="conv")(layers.Rescaling(1.0, -0.5)(image))
    return keras.Model(image, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))


def recurrent() -> keras.Model:
    """A network whose kernels the converter splits by gate."""
    steps = keras.Input((4, 6), name="steps")
    return keras.Model(steps, layers.Dense(3)(layers.GRU(7, unroll=True, name="cell")(steps)))


@pytest.mark.parametrize("make", [rescaled, recurrent])
def test_a_network_whose_weights_the_converter_changes_has_no_template(make):
    with pytest.raises(NoTemplateError, match="computes constants from weights"):
        make_template(analyse(randomised(make())), FLOAT32)


def test_networks_are_written_as_they_are_whatever_was_written_before():
    structure = source(convolutional)
    first, second = (goal(structure, share, 1) for share in (0.9, 0.5))
    files = []
    for order in ((first, second), (second, first)):
        templates = ConversionTemplates()
        written = {id(one): templates.written(analyse(one), FLOAT32, structure.widths) for one in order}
        files.append([written[id(one)] for one in (first, second)])
    assert files[0] == files[1]
    assert_converted(files[0][0], first, Quantization.NONE)
    assert_converted(files[0][1], second, Quantization.NONE)


def test_integers_and_groups_that_the_source_does_not_have_need_the_converter():
    templates, structure = ConversionTemplates(), source(convolutional)
    network = analyse(goal(structure, 0.5, 1))
    int8 = QuantizationConfig(precision=Quantization.INT8)
    assert templates.written(network, int8, structure.widths) is None
    name, *_ = structure.widths
    others = {group: width for group, width in structure.widths.items() if group != name}
    assert templates.written(network, FLOAT32, others) is None


def residual(*, strides: int = 1, kernel: int = 3) -> keras.Model:
    image = keras.Input((6, 6, 2), name="image")
    x = layers.Conv2D(6, 3, strides, padding="same", activation="relu", name="stem")(image)
    y = layers.Conv2D(7, kernel, padding="same", activation="relu", name="inner")(x)
    x = layers.Add(name="add")([x, layers.Conv2D(6, 3, padding="same", name="outer")(y)])
    x = layers.GlobalMaxPooling2D(name="pool")(x)
    return randomised(keras.Model(image, layers.Dense(3, name="scores")(x)))


def without_block() -> keras.Model:
    structure = analyse(residual())
    return narrow(remove_blocks(structure, residual_blocks(structure.graph)), {})


@pytest.mark.parametrize(
    "other",
    [without_block, lambda: residual(strides=2), lambda: residual(kernel=1)],
    ids=["block", "strides", "kernel"],
)
def test_another_architecture_does_not_share_a_template(other):
    templates = ConversionTemplates()
    for model in (residual(), other()):
        structure = analyse(model)
        assert_converted(templates.written(structure, FLOAT32, structure.widths), model, Quantization.NONE)


def test_networks_with_other_statistics_of_their_data_need_the_converter():
    def normalised(seed: int) -> Structure:
        x = keras.Input((4,), name="x")
        y = layers.Dense(5, "relu", name="hidden")(layers.Normalization(name="norm")(x))
        return analyse(randomised(keras.Model(x, layers.Dense(3, name="scores")(y)), seed))

    templates = ConversionTemplates()
    networks = [normalised(seed) for seed in (0, 1)]
    written = [templates.written(each, FLOAT32, each.widths) for each in networks]
    assert [network is None for network in written] == [False, True]


def test_networks_of_single_units_share_a_template_with_wider_ones():
    templates, structure = ConversionTemplates(), analyse(residual())
    narrowest = narrow(structure, {name: np.arange(size) < 1 for name, size in structure.widths.items()})
    for network in (narrowest, model_of(structure.graph)):
        written = templates.written(analyse(network), FLOAT32, structure.widths)
        assert_converted(written, network, Quantization.NONE)
