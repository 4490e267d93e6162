"""Integers at block boundaries, where the ranges measured on both sides differ by rounding."""

from tempfile import TemporaryDirectory

import keras
import numpy as np
import pytest

from executors.structure.exporting import NamedFunction, constant
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.tflite.combining import read_network
from mistify_server.worker.packaging.conversion.converter import convert_saved, save_functions
from mistify_server.worker.packaging.tflite.boundaries import pass_integers
from mistify_server.worker.packaging.tflite.runner import Runner
from mistify_server.worker.packaging.tflite.splitting import split_by_signature
from tests.executors.structure.networks import randomised

layers = keras.layers
RNG = np.random.default_rng(0)
FEATURES = RNG.uniform(size=(40, 4, 4, 6)).astype(np.float32)


def concatenating():
    """Return a concatenation of an input and a tensor within its range: LiteRT uses one scale for all."""
    x = keras.Input((4, 4, 6), name="x")
    return keras.Model(
        x, layers.Concatenate(name="x_2")([layers.MaxPooling2D(3, 1, "same", name="most")(x), x])
    )


def passing():
    x = keras.Input((4, 4, 6), name="x_0")
    return randomised(keras.Model(x, layers.Conv2D(6, 1, activation="relu", name="x")(x)))


@pytest.fixture
def network():
    """Return a network with two blocks as signatures: `second` reads what `first` writes."""
    models = {"first": passing(), "second": concatenating()}

    def rows():
        for row in range(len(FEATURES)):
            given = FEATURES[row : row + 1]
            yield "first", {"x_0": given}
            yield "second", {"x": np.asarray(models["first"](given))}

    with TemporaryDirectory() as directory:
        functions = {key: NamedFunction.like(model, constant(model)) for key, model in models.items()}
        save_functions(functions, directory)
        return read_network(convert_saved(directory, QuantizationConfig(precision=Quantization.INT8), rows))


def written(network):
    """Return the integers that `first` writes."""
    (signature,) = (one for one in network.signatureDefs if one.signatureKey == b"first")
    graph = network.subgraphs[signature.subgraphIndex]
    return graph.tensors[graph.operators[-1].inputs[0]]


@pytest.mark.parametrize("factor", [1.0, 1 + 1e-6, 1.5])
def test_the_next_block_uses_the_scale_of_the_previous_one_and_runs(network, factor):
    tensor = written(network)
    tensor.quantization.scale = np.float32(tensor.quantization.scale * factor)
    pass_integers(network, ["first"], ["second"])
    files = split_by_signature(network)
    first, second = Runner(files["first"]), Runner(files["second"])
    assert first.outputs["x"].dtype == "int8"
    scale, zero_point = tensor.quantization.scale[0], tensor.quantization.zeroPoint[0]
    for info in (first.outputs["x"], second.inputs["x"]):
        assert (info.scale, info.zero_point) == (scale, zero_point)
    given = first({"x_0": FEATURES})
    expected = np.asarray(concatenating()(given["x"]))
    np.testing.assert_allclose(second(given)["x_2"], expected, atol=1.5 * scale)
