"""Every supported layer is exported to ONNX with the outputs of the package."""

from typing import Any

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import keras

from executors.sources.keras.flat import flatten
from mistify.errors import MistifyError
from mistify_server.worker.packaging.conversion.converter import convert
from tests.mistify_client.exporting.compared import channels_first, difference
from tests.support.layer_examples import BODIES, example

KINDS = [*BODIES, keras.layers.Embedding, keras.layers.Normalization]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_layer_that_can_be_packaged_is_exported_in_both_layouts(kind: Any) -> None:
    try:
        network = convert(flatten("model", example(kind)))
    except MistifyError:
        return  # refused when its model is inspected
    assert difference(network) < 1e-5
    assert difference(network, channels_first(network)) < 1e-5
