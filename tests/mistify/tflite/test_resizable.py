"""Networks without their graphs for accelerators, and only these graphs."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from mistify.tflite.resizable import fixed_shapes, resizable
from tests.support.paths import DATA


def graphs(network):
    return Interpreter(model_content=network).num_subgraphs()


@pytest.mark.parametrize("name", ["tiny", "tiny_branches"])
def test_only_graphs_for_any_batch_size_remain(name):
    fixed = (DATA / f"{name}_fixed.tflite").read_bytes()
    left = resizable(fixed)
    signatures = list(Interpreter(model_content=left).get_signature_list())
    assert signatures == list(
        Interpreter(model_content=(DATA / f"{name}.tflite").read_bytes()).get_signature_list()
    )
    chosen = max(1, len(signatures) - 1)
    assert graphs(fixed) - graphs(left) == chosen, "a graph for each network, none for the choice"


def test_the_resizable_network_computes_the_same():
    expected = np.load(DATA / "tiny_expected.npz")
    run = Interpreter(model_content=resizable((DATA / "tiny_fixed.tflite").read_bytes()))
    scores = run.get_signature_runner("serving_default")(image=expected["image"])["scores"]
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-6)


@pytest.mark.parametrize("name", ["tiny", "tiny_branches"])
def test_only_graphs_with_fixed_shapes_remain(name):
    content = (DATA / f"{name}_fixed.tflite").read_bytes()
    whole, left = Interpreter(model_content=content), Interpreter(model_content=fixed_shapes(content))
    keys = [key for key in whole.get_signature_list() if key.endswith("_batch_1")]
    assert list(left.get_signature_list()) == keys
    assert left.num_subgraphs() == len(keys)
    image = np.load(DATA / "tiny_expected.npz")["image"][:1]
    for key in keys:
        runs = (interpreter.get_signature_runner(key) for interpreter in (whole, left))
        expected, actual = (run(image=image)["scores"] for run in runs)
        np.testing.assert_array_equal(actual, expected)


def test_a_network_without_graphs_for_accelerators_is_returned_unchanged():
    network = (DATA / "tiny_branches.tflite").read_bytes()
    assert resizable(network) is network
    assert fixed_shapes(network) is network


@pytest.mark.parametrize("content", [b"", b"no network at all" * 100, b"\xff" * 64])
def test_an_invalid_network_is_an_error(content):
    for part in (resizable, fixed_shapes):
        with pytest.raises(ValueError, match="not a network"):
            part(content)
