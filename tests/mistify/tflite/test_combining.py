"""Moving graphs from one file to another."""

import numpy as np
import pytest
import tensorflow as tf

from executors.structure.exporting import NamedFunction
from mistify.config.package.quantization import QuantizationConfig
from mistify.tflite.combining import CombinedNetwork, names_of, read_network
from mistify_server.worker.packaging.conversion.converter import convert_function
from mistify_server.worker.packaging.tflite.runner import Runner, signatures
from mistify_server.worker.packaging.tflite.splitting import split_by_signature
from tests.mistify_server.worker.packaging.networks import images, network

FLOAT = QuantizationConfig()


def converted(forward, shape=(None, 4)):
    return convert_function(NamedFunction(forward, [tf.TensorSpec(shape, tf.float32, "x")], ["y"]), FLOAT)


@pytest.mark.slow
def test_graphs_of_two_files_run_in_one_combined_file():
    combined = CombinedNetwork()
    for name, forward in {"twice": lambda x: 2.0 * x, "more": lambda x: tf.nn.relu(x + 1.5)}.items():
        one = read_network(converted(forward))
        (signature, _) = one.signatureDefs
        parts = combined.parts_of(one, one.subgraphs[signature.subgraphIndex])
        combined.add(name, *parts, names_of(signature.inputs), names_of(signature.outputs))
    content = combined.packed()
    x = np.arange(-8, 8, dtype=np.float32).reshape(4, 4)
    np.testing.assert_array_equal(Runner(content, "twice")({"x": x})["y"], 2 * x)
    np.testing.assert_array_equal(Runner(content, "more")({"x": x})["y"], np.maximum(x + 1.5, 0))


def test_a_file_is_split_into_signatures_with_only_their_own_weights():
    from mistify_server.worker.packaging.conversion.converter import convert

    whole = convert(network(width=40))
    one, other = split_by_signature(read_network(whole)).values()
    assert all(list(signatures(part)) == ["serving_default"] for part in (one, other))
    for part in (one, other):
        np.testing.assert_array_equal(
            Runner(part)({"image": images(1)})["scores"], Runner(whole)({"image": images(1)})["scores"]
        )
    assert len(one) < len(whole) < len(one) + len(other)


def test_a_graph_that_calls_other_graphs_cannot_be_moved():
    network = read_network(
        converted(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x + 1.0, lambda: x * tf.reduce_mean(x)))
    )
    with pytest.raises(ValueError, match="IF cannot be moved"):
        split_by_signature(network)
