"""Remarks on packages that gained nothing from their precision, with made-up latencies."""

from types import SimpleNamespace

import pytest

from mistify.config.data.metric import Metric
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.measurement import remarks
from mistify_server.worker.packaging.measurement.remarks import Served, drawbacks, float_operators
from tests.mistify_server.worker.packaging.networks import images, network

FLOAT32 = Served(b"", 0.2, 0.80)


@pytest.fixture(scope="module")
def networks():
    """Return a network at several precisions; its last convolution and dense layer are small."""
    model = network(width=40)
    return {
        precision: convert(model, QuantizationConfig(precision=precision), {"image": images(20)})
        for precision in (Quantization.NONE, Quantization.FLOAT16, Quantization.DYNAMIC, Quantization.INT8)
    }


def test_there_is_no_remark_on_a_package_that_is_faster_and_as_accurate():
    assert drawbacks(Quantization.INT8, Served(b"", 0.1, 0.795), FLOAT32, Metric.ACCURACY) == ""


def test_a_loss_of_more_than_a_point_is_reported():
    worse = Served(b"", 0.1, 0.785)
    reported = drawbacks(Quantization.INT8, worse, FLOAT32, Metric.F1)
    assert reported == "as int8: f1 78.5% against 80.0% in float32; int8-qat may lose less"
    assert "may lose less" not in drawbacks(Quantization.INT8_QAT, worse, FLOAT32, Metric.F1)


def test_a_known_cause_replaces_general_advice():
    worse = Served(b"", 0.1, 0.785)
    reported = drawbacks(Quantization.INT8, worse, FLOAT32, Metric.F1, cause="of some layer")
    assert reported == "as int8: f1 78.5% against 80.0% in float32, because of some layer"
    assert drawbacks(Quantization.INT8, Served(b"", 0.1, 0.80), FLOAT32, Metric.F1, cause="any") == ""


@pytest.mark.parametrize(
    ("error", "reported"), [(0.85, ""), (0.7, ""), (0.9, "as dynamic: mse 0.9 against 0.8 in float32")]
)
def test_a_squared_error_may_grow_by_a_tenth(error, reported):
    assert drawbacks(Quantization.DYNAMIC, Served(b"", 0.1, error), FLOAT32, Metric.MSE) == reported


@pytest.mark.parametrize("precision", [Quantization.FLOAT16, Quantization.DYNAMIC])
def test_operators_that_stay_float_are_named(networks, precision):
    reported = drawbacks(precision, Served(networks[precision], 0.25, 0.80), FLOAT32, Metric.ACCURACY)
    of = 7 if precision is Quantization.FLOAT16 else 6
    assert reported.startswith(
        f"as {precision}: not faster than in float32 (0.25 ms against 0.2 ms) because {of} of its 7 operators"
    )
    assert "compute in float32 (ADD, CONV_2D, " in reported


def test_the_overhead_is_named_if_all_operators_use_integers(networks):
    reported = drawbacks(
        Quantization.INT8, Served(networks[Quantization.INT8], 0.25, 0.80), FLOAT32, Metric.ACCURACY
    )
    assert "of an inference is" in reported
    assert "compute in float32" not in reported


def test_the_overhead_is_measured_with_the_threads_of_the_package(networks, monkeypatch):
    used = []

    def measured(network, threads=1, batch=1):
        used.append((threads, batch))
        return SimpleNamespace(median_ms=0.1)

    monkeypatch.setattr(remarks, "latency_of", measured)
    served = Served(networks[Quantization.INT8], 0.25, 0.80)
    drawbacks(Quantization.INT8, served, FLOAT32, Metric.ACCURACY, threads=4)
    assert used == [(4, 1), (4, 2)]


def test_float_operators_are_counted(networks):
    actual = {precision: float_operators(content) for precision, content in networks.items()}
    assert {count for _, count in actual.values()} == {7}
    assert len(actual[Quantization.NONE][0]) == len(actual[Quantization.FLOAT16][0]) == 7
    # Only the weights of the 1 x 1 convolution are large enough.
    assert sorted(actual[Quantization.DYNAMIC][0]) == [
        "ADD", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MEAN", "SOFTMAX"
    ]  # fmt: skip
    assert actual[Quantization.INT8][0] == []
