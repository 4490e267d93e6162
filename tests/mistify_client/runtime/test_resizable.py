"""Networks without their graphs for accelerators."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from mistify_client import load
from mistify_client.runtime.resizable import resizable
from tests.mistify_client.conftest import IMAGE, SCORES, make_package


def graphs(network):
    return Interpreter(model_content=network).num_subgraphs()


@pytest.mark.parametrize("name", ["tiny", "tiny_branches"])
def test_only_what_runs_any_batch_is_left(data, name):
    fixed = (data / f"{name}_fixed.tflite").read_bytes()
    left = resizable(fixed)
    signatures = list(Interpreter(model_content=left).get_signature_list())
    assert signatures == list(
        Interpreter(model_content=(data / f"{name}.tflite").read_bytes()).get_signature_list()
    )
    chosen = max(1, len(signatures) - 1)
    assert graphs(fixed) - graphs(left) == chosen, "one for each network, none for the choice between them"


def test_it_computes_the_same(data, expected):
    run = Interpreter(model_content=resizable((data / "tiny_fixed.tflite").read_bytes()))
    scores = run.get_signature_runner("serving_default")(image=expected["image"])["scores"]
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-6)


def test_a_network_from_before_there_were_any_is_left_as_it_is(data):
    network = (data / "tiny_branches.tflite").read_bytes()
    assert resizable(network) is network


@pytest.mark.parametrize("content", [b"", b"no network at all" * 100, b"\xff" * 64])
def test_what_is_no_network_is_an_error(content):
    with pytest.raises(ValueError, match="no network"):
        resizable(content)


@pytest.mark.parametrize("name", ["tiny", "tiny_fixed"])
def test_a_loaded_package_has_the_graph_in_memory_that_runs(tmp_path, data, expected, monkeypatch, name):
    """LiteRT packs the weights of every graph."""
    opened = []

    def interpret(model_content, **settings):
        opened.append(graphs(model_content))
        return Interpreter(model_content=model_content, **settings)

    monkeypatch.setattr("mistify.litert.Interpreter", interpret)
    model = load(make_package(tmp_path / "package", data / f"{name}.tflite", (IMAGE,), (SCORES,)))
    np.testing.assert_allclose(model(expected["image"]), expected["scores"], atol=1e-6)
    assert set(opened) == {1}
