import keras
import numpy as np
import pytest

from benchmarks.porting.support_matrix import (
    CHANGED_TOLERANCE,
    PACKAGED_TOLERANCE,
    Support,
    architectures,
    half,
    look_at,
    markdown,
    masked,
    random_inputs,
    randomise,
)
from executors.structure import analyse, narrow
from mistify.config.package.quantization import QuantizationConfig
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.conversion.template_making import make_template
from mistify_server.worker.packaging.tflite.runner import run_network
from tests.executors.structure.networks import randomised
from tests.support.paths import REPOSITORY

layers = keras.layers
MATRIX = REPOSITORY / "docs" / "support-matrix.md"


def network():
    """Return a network with a layer norm over channels and a parallel convolution."""
    inputs = keras.Input((6, 6, 3))
    x = layers.Conv2D(16, 3, name="a")(inputs)
    x = layers.LayerNormalization(name="norm")(x)
    x = layers.Conv2D(12, 3, activation="gelu", name="b")(x)
    return randomised(keras.Model(inputs, layers.Dense(4, name="out")(layers.GlobalAveragePooling2D()(x))))


def test_all_keras_applications_are_covered():
    named = {name for name in vars(keras.applications) if name[0].isupper()}
    assert len(named) == 40
    assert architectures().keys() == named | {"BERT classifier", "BERT span", "Video classifier"}


def test_half_of_the_multiply_adds_remain():
    structure = analyse(network())
    keep = half(structure)
    left = structure.network({name: int(mask.sum()) for name, mask in keep.items()}).flops
    assert 0.4 < left / structure.network().flops <= 0.5


def test_a_masked_network_equals_the_narrowed_one_but_not_the_whole():
    model = network()
    structure = analyse(model)
    keep = half(structure)
    images = np.random.default_rng(0).normal(size=(2, 6, 6, 3)).astype(np.float32)
    expected = np.asarray(masked(structure, keep)(images))
    np.testing.assert_allclose(np.asarray(narrow(structure, keep)(images)), expected, atol=1e-5)
    assert np.abs(np.asarray(model(images)) - expected).max() > 0.01


def test_networks_that_differ_or_cannot_be_analysed_are_not_supported():
    good = Support("A", "8", 1, 2, 3, 1, 1, CHANGED_TOLERANCE, CHANGED_TOLERANCE, PACKAGED_TOLERANCE)
    bad = [
        Support("B", "8", 1, 2, 3, 1, 0, 0.0, 2 * CHANGED_TOLERANCE, 0.0),
        Support("S", "8", 1, 2, 3, 1, 1, 2 * CHANGED_TOLERANCE, 0.0, 0.0),
        Support("C", "8", 1, 2, 3, 1, 0, 0.0, 0.0, 2 * PACKAGED_TOLERANCE),
        Support("D", "8", reason="layer 'x' is unknown"),
    ]
    assert [support.supported for support in (good, *bad)] == [True, False, False, False, False]
    rows = markdown([good, *bad]).splitlines()[2:]
    assert [row.split("|")[-2].strip() for row in rows] == [
        "adapted and packaged", "differs", "differs", "differs", "layer 'x' is unknown"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "blocks"), [pytest.param("MobileNetV3Small", 6, marks=pytest.mark.slow), ("BERT span", 4)]
)
def test_a_few_architectures_are_supported(name, blocks):
    support = look_at(name)
    assert support.supported, support
    assert support.groups > 5
    assert support.blocks == blocks
    assert support.least < 0.1 * support.flops


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ConvNeXtTiny", "EfficientNetV2B0", "DenseNet121", "BERT classifier"])
def test_more_architectures_are_supported(name):
    assert look_at(name).supported


def test_the_table_lists_all_architectures_as_supported():
    rows = [line.split("|")[1:-1] for line in MATRIX.read_text().splitlines() if line.startswith("| ")][1:]
    assert {row[0].strip() for row in rows} == set(architectures())
    assert {row[-1].strip() for row in rows} == {"adapted and packaged"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MobileNetV2", "BERT classifier", "ConvNeXtTiny", "DenseNet121"])
def test_a_narrowed_architecture_is_written_as_it_is_converted(name):
    structure = analyse(architectures()[name]())
    randomise(structure.graph)
    small = narrow(structure, half(structure))
    network = make_template(analyse(small), QuantizationConfig()).written(analyse(small))
    inputs = random_inputs(small)
    written, converted = (run_network(one, inputs) for one in (network, convert(small)))
    for output, expected in converted.items():
        assert np.abs(written[output] - expected).max() <= 5e-7 * np.abs(expected).max()
