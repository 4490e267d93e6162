"""The comparison with other converters: its figures, and its own side."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from benchmarks.harness.run import MissingDataError
from benchmarks.porting.onnx_converters import (
    LITERT_TORCH,
    NETWORKS,
    ONNX2TF,
    OURS,
    Converted,
    FailedError,
    Row,
    _measured,
    _own,
    _processor_time,
    figures_of,
    measure,
    placed_as,
)
from benchmarks.porting.onnx_networks import TORCH
from tests.support.onnx_files import model, node, normal, written


def file_of(seconds: float, transposes: int = 0, difference: float = 1e-7) -> Converted:
    return Converted(seconds, 10, transposes, difference, 1e-3)


ROWS = [
    Row(
        "ResNet18",
        {OURS: file_of(10.0, 1), ONNX2TF: file_of(40.0, 3), LITERT_TORCH: file_of(25.0)},
        ratios={ONNX2TF: 0.8, LITERT_TORCH: 1.02},
    ),
    Row(
        "ViT-Ti",
        {OURS: file_of(20.0, 40, 1e-6), LITERT_TORCH: file_of(25.0)},
        {ONNX2TF: "error"},
        {LITERT_TORCH: 0.9},
    ),
    Row("rare options", {OURS: file_of(9.0)}, {ONNX2TF: "error", LITERT_TORCH: "error"}),
]


def test_mistify_is_compared_with_the_better_of_the_others() -> None:
    figures = figures_of(ROWS)
    assert (figures["latency"], figures["latency_worst"]) == (pytest.approx(0.96), 1.02)
    assert (figures["seconds"], figures["seconds_worst"]) == (pytest.approx(0.6), 0.8)
    assert (figures["failed"], figures["failed_onnx2tf"], figures["failed_litert-torch"]) == (0, 2, 1)
    assert figures["transposes"] == 1  # a transformer may have some
    assert figures["difference"] == 1e-6


def test_networks_that_only_others_convert_count_as_failed() -> None:
    figures = figures_of([Row("ResNet18", {ONNX2TF: file_of(1.0)}, {OURS: "error"})])
    assert figures["failed"] == 1
    assert not {"latency", "seconds", "difference"} & figures.keys()


def test_all_networks_are_known() -> None:
    assert TORCH.keys() >= set(NETWORKS)


@pytest.mark.parametrize("directory", [None, Path("absent")])
def test_missing_environments_are_named(directory: Path | None) -> None:
    with pytest.raises(MissingDataError, match="--install"):
        measure(Namespace(environments=directory, install=False))


def test_the_error_of_a_process_is_its_last_line(tmp_path: Path) -> None:
    command = ["bash", "-c", "echo loading; echo 'no such operator' >&2; exit 3"]
    with pytest.raises(FailedError, match=r"^no such operator$"):
        _processor_time(command, tmp_path)


def test_arrays_are_placed_as_a_file_has_them() -> None:
    array = np.arange(24).reshape(1, 2, 3, 4)
    assert placed_as(array, (1, 2, 3, 4)) is array
    np.testing.assert_array_equal(placed_as(array, (1, 3, 4, 2)), array.transpose(0, 2, 3, 1))


@pytest.mark.slow
def test_the_own_file_is_measured(tmp_path: Path) -> None:
    nodes = [node("Conv", "x kernel", "c"), node("Relu", "c", "y")]
    for name, batch in (("free", "n"), ("fixed", 1)):
        proto = model(nodes, {"x": [batch, 3, 9, 7]}, {"kernel": normal(8, 3, 3, 3)})
        written(tmp_path / f"{name}.onnx", proto)
    seconds = _own(tmp_path / "free.onnx", tmp_path / f"{OURS}.tflite")
    files, ratios = _measured(tmp_path, {OURS: seconds}, 3)
    made = files[OURS]
    assert made.seconds > 0.1
    assert made.difference < 1e-6
    assert (made.operators, made.transposes, ratios) == (1, 0, {})
