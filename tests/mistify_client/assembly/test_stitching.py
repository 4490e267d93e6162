"""Stitched networks, compared with the networks that the blocks were made from."""

from collections import Counter

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from executors.structure.blocks import blocks_of
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify.package.blocks import BLOCKS, BlockStore
from mistify.package.manifest import fixed_batch_signature
from mistify.tflite.combining import read_network
from mistify_client.assembly.stitching import stitched
from mistify_server.worker.packaging.conversion.blocks import block_store
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.runner import SIGNATURE, Runner, signatures
from tests.mistify_client.chains import stitch
from tests.support import block_stores
from tests.support.block_stores import HALVED, LAST_TWO, ORIGINAL, called, images, residual
from tests.support.compiled_models import assert_runs_compiled

PRECISIONS = (Quantization.NONE, Quantization.INT8)
NETWORKS = (ORIGINAL, (*ORIGINAL[:2], LAST_TWO))


def in_turn(directory, names, inputs):
    for name in names:
        inputs = Runner((directory / name).read_bytes())(inputs)
    return inputs["scores"]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("names", NETWORKS)
def test_stitched_float_blocks_equal_the_network(tmp_path, names, batch):
    network = stitch(block_stores.write(tmp_path), names)
    actual = Runner(network)({"image": images(batch)})["scores"]
    np.testing.assert_allclose(actual, called(residual(), images(batch)), atol=1e-5)


@pytest.mark.parametrize("names", [*NETWORKS, (ORIGINAL[0], HALVED, LAST_TWO)])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_stitched_blocks_give_the_outputs_of_a_chain(tmp_path, names, precision):
    network = stitch(block_stores.write(tmp_path, precision), names)
    inputs = {"image": images(5)}
    expected = in_turn(tmp_path, names, inputs)
    np.testing.assert_array_equal(Runner(network)(inputs)["scores"], expected)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_stitched_network_has_the_signatures_of_a_package(tmp_path, precision):
    network = stitch(block_stores.write(tmp_path, precision), ORIGINAL)
    one = fixed_batch_signature(SIGNATURE)
    assert list(signatures(network)) == [SIGNATURE, one]
    inputs = {"image": images(1)}
    by_one, by_any = Runner(network, one)(inputs), Runner(network)(inputs)
    np.testing.assert_array_equal(by_one["scores"], by_any["scores"])
    assert assert_runs_compiled(network) == [SIGNATURE, one]


@pytest.mark.sampled
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_stitched_network_is_about_as_large_as_one_converted_as_a_whole(tmp_path, precision):
    network = stitch(block_stores.write(tmp_path, precision), ORIGINAL)
    quantization = QuantizationConfig(precision=precision)
    whole = convert(residual(), quantization, {"image": images(40, seed=1)})
    assert operators(whole) <= operators(network)
    # The output of a pooling has its own quantization range, unlike in the whole network.
    extra = {Quantization.NONE: {}, Quantization.INT8: {schema.BuiltinOperator.QUANTIZE: 2}}
    assert operators(network) - operators(whole) == extra[precision]
    assert len(network) < len(whole) + 2_000


def operators(content):
    """Count each operator in the graphs of a file."""
    network = read_network(content)
    codes = [code.builtinCode for code in network.operatorCodes]
    return Counter(codes[operator.opcodeIndex] for graph in network.subgraphs for operator in graph.operators)


def failure(call, *arguments):
    with pytest.raises(MistifyError) as caught:
        call(*arguments)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    return caught.value.problems[0]


def test_a_damaged_block_is_refused_by_name(tmp_path):
    directory = block_stores.write(tmp_path)
    path = directory / ORIGINAL[1]
    path.write_bytes(path.read_bytes()[:-100])
    assert failure(stitch, directory, ORIGINAL).place == str(path)


def test_incompatible_blocks_are_refused_by_name(tmp_path):
    """A wrong manifest could list such blocks."""
    floats, integers = (block_stores.files(precision) for precision in PRECISIONS)
    wider = block_store(blocks_of(residual(width=10), 0.0), Quantization.NONE)
    problem = failure(stitched, {"a": floats[ORIGINAL[0]], "b": wider[ORIGINAL[1]]})
    assert problem.place == "b"
    assert problem.value == "a block of FLOAT32 [-1, 8, 8, 10]"
    assert problem.expected == "FLOAT32 [-1, 8, 8, 8], as a writes"
    problem = failure(stitched, {"a": integers[ORIGINAL[0]], "b": floats[ORIGINAL[1]]})
    assert problem.place == "b"
    assert problem.expected.startswith("INT8 [-1, 8, 8, 8] of scale 0.0")
    assert failure(stitched, {"a": b"rubbish" * 99, "b": floats[ORIGINAL[1]]}).place == "a"


def test_the_positions_in_the_manifest_decide_which_blocks_connect(tmp_path):
    directory = block_stores.write(tmp_path)
    with pytest.raises(MistifyError, match=r"block-01.tflite begins at position 1; expected 0"):
        stitch(directory, ORIGINAL[1:])
    assert BlockStore.load(directory).last == 4
    assert (directory / BLOCKS).is_file()
