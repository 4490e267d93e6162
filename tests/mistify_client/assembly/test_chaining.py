"""Blocks run as a chain, compared with the network that they were made from."""

import numpy as np
import pytest
import tensorflow as tf

from executors.structure.blocks import blocks_of
from executors.structure.exporting import NamedFunction
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify_client.assembly.executions import Execution, open_network
from mistify_server.worker.packaging.conversion.converter import convert_function
from mistify_server.worker.packaging.tflite.runner import Runner
from tests.mistify_client.chains import load_chain, stitch
from tests.support import block_stores
from tests.support.block_stores import LAST_TWO, ORIGINAL, called, images, residual

PRECISIONS = (Quantization.NONE, Quantization.INT8)


@pytest.mark.sampled
@pytest.mark.parametrize("names", [ORIGINAL, (*ORIGINAL[:2], LAST_TWO)])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_chain_and_the_stitched_network_give_the_same_outputs_for_any_batch_size(
    tmp_path, names, precision
):
    directory = block_stores.write(tmp_path, precision)
    chain = load_chain(directory, names, 1)
    stitched = Runner(stitch(directory, names))
    for batch in (1, 4, 2, 1):
        inputs = {"image": images(batch)}
        np.testing.assert_array_equal(chain(inputs)["scores"], stitched(inputs)["scores"])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_both_executions_give_the_same_outputs(tmp_path, precision):
    directory = block_stores.write(tmp_path, precision)
    by_interpreter, compiled = (load_chain(directory, ORIGINAL, 1, execution) for execution in Execution)
    for batch in (1, 3):
        inputs = {"image": images(batch)}
        for one, other in zip(by_interpreter.features(inputs), compiled.features(inputs), strict=True):
            assert one.keys() == other.keys()
            for name, expected in one.items():
                assert other[name].dtype == expected.dtype
                np.testing.assert_allclose(other[name], expected, atol=1e-6)


@pytest.mark.parametrize("image", [images(2)[:, :7], images(2).astype("float64")], ids=["small", "double"])
@pytest.mark.parametrize("execution", Execution)
def test_inputs_of_another_shape_or_type_are_refused(tmp_path, execution, image):
    chain = load_chain(block_stores.write(tmp_path), ORIGINAL, 1, execution)
    with pytest.raises((ValueError, RuntimeError)):
        chain({"image": image})


def test_a_block_whose_shapes_depend_on_values_does_not_run_compiled():
    taken = [tf.TensorSpec((None, 4), tf.float32, "x")]
    function = NamedFunction(lambda x: tf.reshape(tf.boolean_mask(x, x > 0), (-1, 1)), taken, ["positive"])
    with pytest.raises(ValueError, match="its shapes cannot be fixed"):
        open_network(convert_function(function, QuantizationConfig()), Execution.COMPILED, 1)


def test_a_chain_yields_the_features_after_each_block(tmp_path):
    chain = load_chain(block_stores.write(tmp_path), ORIGINAL, 1)
    expected = images(2)
    inputs = {"image": images(2)}
    for block, feature in zip(blocks_of(residual(), 0.0), chain.features(inputs), strict=True):
        expected = called(block.model, expected)
        (actual,) = feature.values()
        np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_a_chain_continues_from_given_features(tmp_path):
    """Two networks that share their first blocks need to run these only once."""
    directory = block_stores.write(tmp_path)
    chain = load_chain(directory, (*ORIGINAL[:2], LAST_TWO), 1)
    (_, feature, expected) = chain.features({"image": images(2)})
    np.testing.assert_array_equal(chain.blocks[2](feature)["scores"], expected["scores"])


def test_a_loaded_chain_no_longer_needs_its_files(tmp_path):
    directory = block_stores.write(tmp_path)
    chain = load_chain(directory, ORIGINAL, 1)
    for name in ORIGINAL:
        (directory / name).unlink()
    np.testing.assert_allclose(
        chain({"image": images(2)})["scores"], called(residual(), images(2)), atol=1e-5
    )


def test_a_block_of_another_network_is_refused_by_name(tmp_path):
    directory = block_stores.write(tmp_path)
    path = directory / ORIGINAL[2]
    path.write_bytes((directory / ORIGINAL[1]).read_bytes())
    with pytest.raises(MistifyError) as caught:
        load_chain(directory, ORIGINAL, 1)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    assert caught.value.problems[0].place == str(path)
