"""Writing changed networks: identical parts are stored once, and the network stays the same."""

from copy import copy

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

from mistify.tflite.packing import packed
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.runner import run_network
from tests.mistify_server.worker.packaging.networks import images, network


@pytest.fixture(scope="module")
def converted():
    return convert(network(width=40))


def read(content):
    return flatbuffer_utils.read_model_from_bytearray(bytearray(content))


def plain(part):
    """Return a part of a network as plain numbers, strings and lists."""
    if isinstance(part, np.ndarray):
        return part.tolist()
    if isinstance(part, list):
        return [plain(each) for each in part]
    return {key: plain(value) for key, value in vars(part).items()} if hasattr(part, "__dict__") else part


def test_nothing_is_lost(converted):
    assert plain(read(packed(read(converted)))) == plain(read(converted))


def test_the_packed_network_computes_the_same(converted):
    example = {"image": images(3)}
    actual = run_network(packed(read(converted)), example)["scores"]
    np.testing.assert_array_equal(actual, run_network(converted, example)["scores"])


def test_a_copy_of_a_graph_takes_little_space(converted):
    model = read(converted)
    again = copy(model.subgraphs[0])
    parts = len(again.tensors) + len(again.operators)
    model.subgraphs.append(again)
    assert len(packed(model)) - len(packed(read(converted))) <= 4 * parts + 100


def test_equal_constants_are_not_merged():
    """Tuning may overwrite one of them."""
    model = schema.ModelT(subgraphs=[schema.SubGraphT(tensors=[], operators=[])], buffers=[schema.BufferT()])
    model.buffers += [schema.BufferT(data=np.full(64, 7, np.uint8)) for _ in range(2)]
    content = packed(model)
    assert content.count(bytes([7] * 64)) == 2


def test_the_contents_of_buffers_are_aligned(converted):
    network = schema.Model.GetRootAs(packed(read(converted)), 0)
    buffers = (network.Buffers(number) for number in range(network.BuffersLength()))
    begins = [buffer._tab.Vector(buffer._tab.Offset(4)) for buffer in buffers if buffer.DataLength()]
    assert len(begins) > 5
    assert [begin % 16 for begin in begins] == [0] * len(begins)
