"""Training networks that need less memory: the same bits, in an order that LiteRT keeps."""

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from mistify.tflite.combining import read_network
from mistify.tflite.memory import memory_bytes
from mistify.tflite.packing import packed
from mistify_server.worker.packaging.scheduling.memory import with_little_memory
from mistify_server.worker.packaging.training.network import convert_training
from tests.mistify_server.worker.packaging.training.networks import lesson_of, trained

layers = keras.layers


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    inputs = keras.Input((12, 12, 3), name="image")
    x = y = layers.Conv2D(8, 3, padding="same", activation="relu")(inputs)
    y = layers.Conv2D(8, 3, padding="same")(y)
    x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.Conv2D(8, 3, 2, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(3, name="out")(layers.Flatten()(x)))


@pytest.fixture(scope="module")
def converted(model):
    return convert_training(trained(model))


@pytest.fixture(scope="module")
def little(converted):
    return with_little_memory(converted)


def trained_by(content, lesson):
    """Losses and weights, as bytes, after three steps and one of adaptation."""
    interpreter = Interpreter(model_content=content, num_threads=1)
    train = interpreter.get_signature_runner("train")
    scalars = {"kd_weight": np.float32(0.5), "learning_rate": np.float32(0.01)}
    losses = [train(**lesson, **scalars)["loss"].tobytes() for _ in range(3)]
    weights = interpreter.get_signature_runner("weights")()
    return losses, {name: value.tobytes() for name, value in weights.items()}


def test_losses_and_weights_are_equal_to_the_bit(model, converted, little):
    assert trained_by(little, lesson_of(model)) == trained_by(converted, lesson_of(model))


def test_a_step_needs_less_memory(converted, little):
    before, after = (memory_bytes(content, ["train"]) for content in (converted, little))
    assert after < 0.8 * before


def test_a_file_may_leave_out_the_shapes_of_scalars(converted, little):
    network = read_network(converted)
    for tensor in (tensor for graph in network.subgraphs for tensor in graph.tensors):
        tensor.shape = tensor.shape if len(tensor.shape) else None
    with_less = with_little_memory(packed(network))
    assert memory_bytes(with_less, ["train"]) == memory_bytes(little, ["train"])


def order_of(content):
    """The dependencies of operators of each graph, read from the file byte by byte."""
    model = read_network(content)
    (entry,) = [one for one in model.metadata if one.name == b"model_control_dependencies"]
    rest = list(map(int, model.buffers[entry.buffer].data))

    def number():
        value, factor = 0, 1
        while True:
            byte = rest.pop(0)
            value, factor = value + byte % 128 * factor, factor * 128
            if byte < 128:
                return value

    assert number() == 1
    found = [[(number() / 2, number() / 2) for _ in range(number())] for _ in range(number())]
    assert not rest
    return found


def test_operators_of_graphs_with_fixed_shapes_run_in_their_order(little):
    model = read_network(little)
    graphs = {one.signatureKey.decode(): one.subgraphIndex for one in model.signatureDefs}
    order = order_of(little)
    assert len(order) == len(model.subgraphs)
    count = len(model.subgraphs[graphs["train"]].operators)
    assert count > 130  # numbers of two bytes
    assert order[graphs["train"]] == [(at, at + 1) for at in range(count - 1)]
    assert order[graphs["infer"]] == []


def test_graphs_of_open_shapes_keep_their_operators(converted, little):
    def operators(content):
        model = read_network(content)
        (index,) = [one.subgraphIndex for one in model.signatureDefs if one.signatureKey == b"infer"]
        return [(one.opcodeIndex, *one.inputs, *one.outputs) for one in model.subgraphs[index].operators]

    assert operators(little) == operators(converted)


def test_what_is_given_and_returned_keeps_its_names(converted, little):
    before, after = (
        Interpreter(model_content=content).get_signature_list() for content in (converted, little)
    )
    assert after == before
