from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import keras

from benchmarks.harness.run import MissingDataError
from benchmarks.porting import onnx_reading
from benchmarks.porting.onnx_matrix import Row, figures_of, markdown
from benchmarks.porting.onnx_networks import PACKAGED, TORCH, PackagedFile, export
from benchmarks.porting.onnx_reading import Reading, read
from tests.support.onnx_files import model, node, normal, written
from tests.support.paths import REPOSITORY

MATRIX = REPOSITORY / "docs" / "onnx-matrix.md"

SMALL = Reading(1_000_000, 1e-6, 2.0, 9e7, 1, 3, 0.5, None)
LARGE = Reading(100_000_000, 1e-7, 5.0, 6e8, 2, 22, 0.1, 23)


def network(path: Path) -> Path:
    nodes = [
        *(node("Conv", "x kernel", "c"), node("Relu", "c", "r"), node("GlobalAveragePool", "r", "g")),
        *(node("Flatten", "g", "f"), node("Gemm", "f weight", "y", transB=1)),
    ]
    weights = {"kernel": normal(8, 3, 3, 3), "weight": normal(4, 8)}
    return written(path / "net.onnx", model(nodes, {"x": ["n", 3, 9, 7]}, weights))


def test_a_file_is_read_and_compared(tmp_path: Path) -> None:
    path = network(tmp_path)
    reading = read(path, {}, "")
    assert reading.size == path.stat().st_size
    assert 0 <= reading.difference < 1e-5
    assert (reading.groups, reading.permutes, reading.twin_groups) == (1, 0, None)
    assert reading.least == (3 * 9 + 4) / (8 * 3 * 9 + 8 * 4)
    assert reading.seconds > 0


def test_wrong_outputs_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = onnx_reading.read_onnx

    def wrong(path: Path, sizes: object) -> object:
        read_ = right(path, {})
        layer = read_.model.layers[-2]
        layer.set_weights([array * 1.01 for array in layer.get_weights()])
        return read_

    monkeypatch.setattr(onnx_reading, "read_onnx", wrong)
    assert read(network(tmp_path), {}, "").difference == pytest.approx(0.01, rel=0.01)


def test_a_state_may_have_its_batch_second(tmp_path: Path) -> None:
    nodes = [
        *(node("Split", "state", "h c", axis=0), node("Unsqueeze", "x zero", "s")),
        node("LSTM", "s w r - - h c", "y last memory", hidden_size=6),
        *(node("Concat", "last memory", "next", axis=0), node("Mul", "next rate", "scaled")),
    ]
    weights = {"w": normal(1, 24, 5), "r": normal(1, 24, 6), "zero": np.array([0])}
    inputs = {"x": ["n", 5], "state": [2, "n", 6], "rate": []}
    path = written(tmp_path / "net.onnx", model(nodes, inputs, weights, outputs=["scaled"], opset=14))
    assert read(path, {"rate": [3]}, "").difference < 1e-5


def test_probabilities_are_compared_with_one(tmp_path: Path) -> None:
    nodes = [node("Gemm", "x weight bias", "g"), node("Sigmoid", "g", "y")]
    weights = {"weight": normal(5, 2), "bias": np.full(2, -30, np.float32)}
    path = written(tmp_path / "net.onnx", model(nodes, {"x": ["n", 5]}, weights))
    assert read(path, {}, "").difference < 1e-10


def test_figures_are_those_of_the_worst_file() -> None:
    rows = [
        Row("a", "TorchScript", reading=SMALL),
        Row("b", "dynamo", convolutional=True, reading=LARGE),
        Row("c", "dynamo", reason="operator Loop"),
        Row("d", "magika", reason="not installed", skipped=True),
    ]
    assert figures_of(rows) == {
        "files": 2,
        "skipped": 1,
        "refused": 1,
        "difference": 1e-6,
        "seconds": 5.0,
        "memory": 6.0,
        "permutes": 2,
        "fewer_groups": 1,
    }
    assert "memory" not in figures_of(rows[:1])
    verdicts = [line.split("|")[-2].strip() for line in markdown(rows).splitlines()[2:]]
    assert verdicts == ["read", "read", "refused: operator Loop", "skipped: not installed"]


def test_the_table_lists_all_files_as_read() -> None:
    rows = [line.split("|")[1:-1] for line in MATRIX.read_text().splitlines() if line.startswith("| ")][1:]
    exported = {(name, exporter) for name in TORCH for exporter in ("TorchScript", "dynamo")}
    packaged = {(name, each.package) for name, each in PACKAGED.items()}
    assert {(row[0].strip(), row[1].strip()) for row in rows} == exported | packaged
    assert {row[-1].strip() for row in rows} == {"read"}


def test_missing_packages_are_named() -> None:
    with pytest.raises(MissingDataError, match=r"no package absent with net\.onnx is installed"):
        _ = PackagedFile("absent", "net.onnx").path
    with pytest.raises(MissingDataError, match=r"no package keras with net\.onnx is installed"):
        _ = PackagedFile("keras", "net.onnx").path


@pytest.mark.slow
def test_a_network_is_exported_and_read(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    export("detector", tmp_path / "net.onnx", newer=False)
    reading = read(tmp_path / "net.onnx", {}, "")
    assert reading.difference < 1e-5
    assert reading.groups == 11


def test_groups_of_a_twin_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def twin(weights: None, input_shape: tuple[int, ...], classes: int) -> keras.Model:
        layers = [keras.Input(input_shape), keras.layers.Conv2D(4, 3), keras.layers.GlobalAveragePooling2D()]
        return keras.Sequential([*layers, keras.layers.Dense(classes)])

    monkeypatch.setattr(keras.applications, "VGG16", twin)
    assert read(network(tmp_path), {}, "VGG16").twin_groups == 1
