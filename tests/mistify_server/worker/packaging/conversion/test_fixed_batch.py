"""Signatures for batch size 1: their shapes are fixed, and they add little to the file."""

from copy import copy

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from ai_edge_litert.tools import flatbuffer_utils

from executors.structure import fold_batch_norm
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.package.tuning import TuningConfig
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import fixed_batch_signature
from mistify.tflite.packing import packed
from mistify_server.worker.packaging import models as packaging
from mistify_server.worker.packaging.conversion.converter import NamedFunction, convert, convert_function
from mistify_server.worker.packaging.conversion.placement import convert_placed
from mistify_server.worker.packaging.tflite.runner import SIGNATURE, Runner, signatures
from mistify_server.worker.packaging.training.parts import trainable_weights
from tests.executors.structure.architectures import FAMILIES
from tests.executors.structure.networks import randomised
from tests.mistify_server.worker.packaging.networks import (
    images,
    network,
    package_task,
    packaged,
    training_setup,
)

FIXED = fixed_batch_signature(SIGNATURE)


def family(name):
    build, _ = FAMILIES[name]
    return randomised(build(lambda group, tensor, repeat=None: tensor))


def graphs(converted):
    """Return the graph for any batch size, and the one for batch size 1."""
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(converted))
    return model, model.subgraphs


def names(model, graph):
    return [flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex) for operator in graph.operators]


# Networks with shapes computed at run time: flattened inputs, rows, and upscaling by a factor.
@pytest.mark.sampled
@pytest.mark.parametrize("name", ["flattened", "squeeze_excite_reshape", "transposed", "one_dimensional"])
def test_all_shapes_are_fixed_and_none_is_computed_at_run_time(name):
    model, (free, fixed) = graphs(convert(family(name)))
    assert any(tensor.shapeSignature is not None for tensor in free.tensors)
    assert all(tensor.shapeSignature is None for tensor in fixed.tensors)
    assert "SHAPE" in names(model, free)
    assert not {"SHAPE", "PACK"} & set(names(model, fixed))


def test_both_graphs_have_the_same_weights():
    _, (free, fixed) = graphs(convert(network()))
    assert [tensor.buffer for tensor in free.tensors] == [tensor.buffer for tensor in fixed.tensors]


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["flattened", "siamese"])
def test_both_graphs_give_the_same_outputs_for_one_example(name):
    model = family(name)
    rng = np.random.default_rng(0)
    example = {tensor.name: rng.normal(size=(1, *tensor.shape[1:])) for tensor in model.inputs}
    converted = convert(model)
    expected = Runner(converted)(example)
    for output, actual in Runner(converted, FIXED)(example).items():
        np.testing.assert_array_equal(actual, expected[output])


def test_without_a_signature_a_network_takes_any_batch():
    interpreter = Interpreter(model_content=convert(network()))
    (image,), (scores,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.resize_tensor_input(image["index"], (5, 8, 8, 2))
    interpreter.allocate_tensors()
    interpreter.set_tensor(image["index"], images(5))
    interpreter.invoke()
    assert interpreter.get_tensor(scores["index"]).shape == (5, 3)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("precision", "most"),
    [("none", 300), ("float16", 150), ("dynamic", 300), ("int8", 450)],
    ids=["none", "float16", "dynamic", "int8"],
)
def test_the_second_graph_takes_little_space(precision, most, monkeypatch):
    """Weights are stored once, and so are equal constants of both graphs."""
    model, examples = network(width=40), {"image": images(20)}
    quantization = QuantizationConfig.model_validate(precision)
    with_both = convert(model, quantization, examples)
    monkeypatch.setattr(
        "mistify_server.worker.packaging.conversion.converter.with_fixed_batch", lambda converted: converted
    )
    assert len(with_both) - len(convert(model, quantization, examples)) <= most


def test_tuned_weights_apply_to_both_graphs():
    """They overwrite the old weights at offsets that are recorded once the file is complete."""
    model = fold_batch_norm(network())
    converted, places = convert_placed(model, trainable_weights(model, TuningConfig(trainable="network")))
    tuned = bytearray(converted)
    (kernel,) = places["scores/kernel"]
    kernel.put(np.ones((6, 3), np.float32), tuned)
    (by_any,) = Runner(bytes(tuned))({"image": images(1)}).values()
    (by_one,) = Runner(bytes(tuned), FIXED)({"image": images(1)}).values()
    (before,) = Runner(converted, FIXED)({"image": images(1)}).values()
    np.testing.assert_array_equal(by_any, by_one)
    assert np.abs(by_one - before).max() > 1e-3


def test_a_shape_that_depends_on_values_is_not_fixed():
    taken = [tf.TensorSpec((None, 4), tf.float32, "x")]
    function = NamedFunction(lambda x: tf.reshape(tf.boolean_mask(x, x > 0), (-1, 1)), taken, ["positive"])
    assert list(signatures(convert_function(function, QuantizationConfig()))) == [SIGNATURE]


def with_other_fixed_weights(converted):
    """Return the network with other weights in the graph for batch size 1."""
    model, (_, fixed) = graphs(converted)
    fixed.tensors = [copy(tensor) for tensor in fixed.tensors]
    kernel = next(tensor for tensor in fixed.tensors if list(tensor.shape) == [3, 6])
    model.buffers.append(schema.BufferT(data=np.ones((3, 6), np.float32).view(np.uint8).ravel()))
    kernel.buffer = len(model.buffers) - 1
    return packed(model)


@pytest.mark.slow
def test_a_package_with_different_outputs_for_one_example_is_refused(monkeypatch):
    model = network()
    with monkeypatch.context() as patch:
        patch.setattr(packaging, "convert", lambda *asked: with_other_fixed_weights(convert(*asked)))
        with pytest.raises(MistifyError) as error:
            packaged(model, package_task(), training_setup(model))
    assert error.value.code is ErrorCode.CORRUPT_PACKAGE
    packaged(model, package_task(), training_setup(model))
