"""Calibrated profiles of this machine reproduce the latencies of the source and the smallest network."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import keras
import numpy as np
import pytest

from executors.data import Dataset
from executors.structure import analyse, narrow
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import MeasuredNetwork, NominalProfile
from mistify.costs.quantization import STORED, Quantization
from mistify_server.worker.adaptation.calibration import calibrated, calibrated_host, least_network
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.runner import run_network
from tests.mistify_server.worker.adaptation.machines import dense_network, measured_board, predicted

layers = keras.layers

CALIBRATION = "mistify_server.worker.adaptation.calibration"

PI = NominalProfile("pi", 5.0, 1.0)


@pytest.mark.slow
def test_calibration_only_changes_this_machine(model: keras.Model) -> None:
    host, four, pi = calibrated((HOST.slower(1e6), HOST.with_threads(4), PI), model)
    assert pi == PI
    assert (four.name, four == HOST.with_threads(4)) == ("host@4-threads", False)
    assert (host.name, host == HOST.slower(1e6)) == ("host", False)
    assert 1e-5 < predicted(model, host) < 100


def test_this_machine_has_a_profile_at_each_precision_that_predicts_the_source(
    model: keras.Model, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Float32 is three times slower than int8."""
    taken = {"none": 3.0, "float16": 2.9, "dynamic": 2.0, "int8": 1.0}
    monkeypatch.setattr(
        f"{CALIBRATION}.latencies",
        lambda network, precisions, train, threads: {at: taken[at.value] / threads for at in STORED},
    )
    host = measured_board(), measured_board(integer=True)
    profiles = {profile.name: profile for profile in calibrated_host(host, model, data)}
    assert list(profiles) == ["host", "host@float16", "host@dynamic", "host@int8"]
    assert [predicted(model, profile) for profile in profiles.values()] == pytest.approx(list(taken.values()))
    assert [profile.integer for profile in profiles.values()] == [False, False, False, True]
    kernels = [profile.kernels for profile in profiles.values()]
    assert kernels == [None, None, host[1].model, None]
    four = list(calibrated_host(host, model, data, 4))
    assert [profile.name for profile in four] == [
        *("host@4-threads", "host@4-threads@float16", "host@4-threads@dynamic", "host@4-threads@int8")
    ]
    assert {profile.threads for profile in four} == {4}
    assert [4 * predicted(model, profile) for profile in four] == pytest.approx(list(taken.values()))


def test_each_measured_number_of_threads_has_its_own_profile(
    model: keras.Model, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads were not measured: networks are assumed to gain as much from them as the source."""
    monkeypatch.setattr(f"{CALIBRATION}.latencies", lambda *_: dict.fromkeys(STORED, 1.0))
    with_one = measured_board(), measured_board(integer=True)
    model_of_four = with_one[0].model.model_copy(update={"start": 1e6})
    with_four = [replace(board, threads=4, model=model_of_four) for board in with_one]
    by_threads = {
        threads: next(calibrated_host([*with_four, *with_one], model, data, threads)) for threads in (1, 2, 4)
    }
    assert {threads: profile.model.start for threads, profile in by_threads.items()} == {
        1: with_one[0].model.start,
        2: with_one[0].model.start,
        4: 1e6,
    }
    assert by_threads[4].name == "host@4-threads"


def test_a_precision_that_the_source_does_not_support_takes_as_long_as_float32(
    model: keras.Model, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{CALIBRATION}.latencies", lambda *_: {Quantization.NONE: 3.0})
    host = measured_board(), measured_board(integer=True)
    *_, integers = calibrated_host(host, model, data)
    assert integers.name == "host@int8"
    assert predicted(model, integers) == pytest.approx(3.0)


def test_profiles_are_not_calibrated_if_the_source_cannot_run(
    model: keras.Model, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small network alone does not determine a line."""
    for taken in ({}, {Quantization.NONE: 1.0}):
        monkeypatch.setattr(
            f"{CALIBRATION}.latencies",
            lambda network, *_, taken=taken: {} if network is model else taken,
        )
        host = measured_board(), measured_board(integer=True)
        profiles = list(calibrated_host(host, model, data))
        assert [profile.name for profile in profiles] == ["host", "host@float16", "host@dynamic", "host@int8"]
        assert {predicted(model, profile) for profile in profiles} == {predicted(model, host[0])}


def test_a_small_network_that_only_runs_in_int8_counts_for_int8(
    model: keras.Model, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = {Quantization.INT8: 0.5}
    monkeypatch.setattr(
        f"{CALIBRATION}.latencies",
        lambda network, *_: dict.fromkeys(STORED, 1.0) if network is model else taken,
    )
    profiles = list(calibrated_host((measured_board(), measured_board(integer=True)), model, data))
    least = least_network(model)
    assert predicted(least, profiles[3]) == pytest.approx(0.5)
    assert predicted(least, profiles[0]) < 0.4


def test_profiles_predict_the_smallest_network_and_interpolate_towards_the_source(
    model: keras.Model, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every network has an overhead of 0.4 ms, and int8 does not speed up narrow networks."""
    board, source_ms = measured_board(), predicted(model, measured_board())

    def took(network: keras.Model, precision: str) -> float:
        share = predicted(network, board) / source_ms
        return {"int8": 1.0 - 0.5 * share}.get(precision, 0.4 + 0.6 * share)

    fake_measurements(took, monkeypatch)
    profiles = list(calibrated_host((board, measured_board(integer=True)), model, data))
    least = least_network(model)
    half = narrow(analyse(model), {name: np.arange(96) < 48 for name in analyse(model).groups})
    for network in (model, half, least):
        assert predicted(network, profiles[0]) == pytest.approx(took(network, "none"))
        assert predicted(network, profiles[0].slower(2)) == pytest.approx(2 * took(network, "none"))
    # All networks take equally long if the smallest one took longer than the source.
    assert predicted(model, profiles[3]) == predicted(least, profiles[3]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("error", "raised"), [(RuntimeError("no such operator"), False), (MemoryError(), True)]
)
def test_a_smallest_network_that_cannot_be_converted_does_not_count(
    model: keras.Model, data: Dataset, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: bool
) -> None:
    """Running out of memory, in contrast, is an error."""

    def latencies(network: keras.Model, *_: object) -> dict[Quantization, float]:
        if network is not model:
            raise error
        return dict.fromkeys(STORED, 1.0)

    monkeypatch.setattr(f"{CALIBRATION}.latencies", latencies)
    host = measured_board(), measured_board(integer=True)
    with pytest.raises(type(error)) if raised else nullcontext():
        profiles = list(calibrated_host(host, model, data))
        assert [predicted(model, profile) for profile in profiles] == pytest.approx([1.0] * 4)


def test_only_the_source_counts_if_the_line_would_become_negative() -> None:
    """On a line through both networks, half of the source would have a negative latency."""
    model = dense_network()
    board, source = measured_board(), analyse(model).network()
    least = analyse(least_network(model)).network()
    predicted_ms = board.latency_ms(source)
    fitted = board.fitted(
        MeasuredNetwork(source, 3 * predicted_ms), MeasuredNetwork(least, board.latency_ms(least) / 9)
    )
    assert (fitted.factor, fitted.fixed_ms) == (pytest.approx(3.0), 0.0)
    alike = board.fitted(MeasuredNetwork(source, 2 * predicted_ms), MeasuredNetwork(source, predicted_ms))
    assert (alike.factor, alike.fixed_ms) == (pytest.approx(2.0), 0.0)


def test_the_smallest_network_has_few_but_active_units_in_each_group() -> None:
    assert [weights.shape for weights in least_network(dense_network()).get_weights()] == [
        *((16, 8), (8,)),
        *((8, 8), (8,)),
        *((8, 4), (4,)),
    ]


def test_smaller_groups_keep_all_their_units() -> None:
    image = keras.Input((6, 6, 3))
    x = layers.DepthwiseConv2D(3)(layers.Conv2D(5, 1, activation="relu")(image))
    narrow_source = keras.Model(image, layers.Dense(2)(layers.GlobalAveragePooling2D()(x)))
    shapes = [weights.shape for weights in least_network(narrow_source).get_weights()]
    assert shapes == [weights.shape for weights in narrow_source.get_weights()]


def fake_measurements(took: Callable[[keras.Model, str], float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace measurements by a function of the network and its precision."""
    monkeypatch.setattr(
        f"{CALIBRATION}.latencies",
        lambda network, precisions, train, threads: {at: took(network, at.value) for at in STORED},
    )


def test_the_smallest_network_of_an_encoder_runs_in_int8() -> None:
    """LiteRT aborts on a layer norm with one channel: its output is 0, and so is the int8 scale."""
    words = keras.Input((6,), dtype="int32")
    x = layers.Embedding(20, 16)(words)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x))
    source = keras.Model(words, layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))
    least = least_network(source)
    assert least.layers[1].output.shape[-1] == 8
    examples = {words.name: np.arange(48, dtype=np.int32).reshape(8, 6) % 20}
    content = convert(least, QuantizationConfig(precision=Quantization.INT8), examples)
    answers = run_network(content, examples)
    assert np.ptp(next(iter(answers.values()))) > 0
