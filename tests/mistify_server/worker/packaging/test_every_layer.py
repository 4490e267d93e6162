"""Every supported layer is packaged in int8, or refused when its model is analysed."""

from typing import Any

import keras
import numpy as np
import pytest

from executors.compression import compressed, quantization_aware
from executors.data import Dataset
from executors.structure import UnsupportedLayerError, analyse
from executors.structure.handlers import registered
from executors.structure.keras_internals import core
from executors.structure.reading.reader import read_graph
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.config.package.compression import CompressionConfig
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.errors import MistifyError
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.layer_names import float_kernels
from mistify_server.worker.packaging.tflite.runner import Runner
from tests.support.layer_examples import example, rows

INT8 = QuantizationConfig(precision=Quantization.INT8)

#: Without layers of plug-ins and KerasHub, which are registered when in use, and without slices, which need a
#: fixed batch size.
KINDS = [
    kind
    for kind in registered()
    if kind.__module__.startswith(("keras.src.", "executors.")) and kind is not core.Slice
]


#: Layers whose kernels the converter leaves in float32.
_OF_VOLUMES = (keras.layers.Conv3D, keras.layers.Conv3DTranspose)


def setup_of(model: keras.Model) -> TrainingSetup:
    x = rows(model, 48)
    classes = np.asarray(model(x["x"], training=False)).argmax(axis=-1)
    data = Dataset(x, {"scores": classes})
    return TrainingSetup(data, data, None, TrainingParams(batch_size=16))


def refusal(model: keras.Model) -> str:
    """Return why inspection, which converts a model in float32, refuses it; empty if it is accepted."""
    try:
        analyse(model)
        convert(model)
    except (UnsupportedLayerError, MistifyError) as error:
        return str(error)
    return ""


def names_a_layer(reason: str, model: keras.Model) -> bool:
    return any(repr(layer) in reason for layer in read_graph(model).layers)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_layer_is_trained_and_packaged_as_int8_or_refused_at_submission(kind: Any) -> None:
    model = example(kind)
    if reason := refusal(model):
        assert names_a_layer(reason, model)
        return
    setup = setup_of(model)
    network = convert(quantization_aware(model, setup, 2, 0), INT8, setup.train.inputs)
    outputs = Runner(network)(setup.train.inputs)["scores"]
    expected = np.asarray(model(setup.train.inputs["x"], training=False))
    assert np.abs(outputs - expected).mean() < 0.1
    in_float32 = float_kernels(network, read_graph(model).layers)
    assert set(in_float32) <= ({"conv3d"} if kind in _OF_VOLUMES else set())


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("asked", [CompressionConfig(sparsity=0.5), CompressionConfig(clusters=4)], ids=str)
def test_a_layer_is_compressed_or_refused_at_submission(kind: Any, asked: CompressionConfig) -> None:
    model = example(kind)
    if reason := refusal(model):
        assert names_a_layer(reason, model)
        return
    actual = compressed(model, asked, setup_of(model), 2, 0)
    kernel = np.asarray(actual.get_layer("scores").kernel)
    if asked.clusters is None:
        assert (kernel == 0).mean() == pytest.approx(0.5, abs=1 / kernel.size)
    else:
        assert len(np.unique(kernel)) <= 4
