"""The inputs and outputs of ONNX files are recorded as the files have them."""

from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto

from executors.sources.keras.source import KerasSource
from executors.sources.onnx.loading import read_onnx
from mistify.package.source import SourceInterface, SourceTensor
from tests.support.onnx_files import model, node, normal, written


def loaded(tmp_path: Path) -> KerasSource:
    """Return a network of an image and a list of numbers, whose outputs have three ranks."""
    nodes = [
        node("Conv", "input.1 conv.weight", "features", pads=[1, 1, 1, 1]),
        node("Cast", "numbers", "floats", to=TensorProto.FLOAT),
        node("Gemm", "floats fc.weight", "/head/scores", transB=1),
        node("ArgMax", "/head/scores", "best", axis=1, keepdims=0),
    ]
    proto = model(
        nodes,
        {"input.1": ["n", 3, 8, 8], "numbers": ["n", 4]},
        {"conv.weight": normal(5, 3, 3, 3), "fc.weight": normal(6, 4)},
        outputs=("features", "/head/scores", "best"),
    )
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    proto.graph.output[2].type.tensor_type.elem_type = TensorProto.INT64
    return KerasSource(*read_onnx(written(tmp_path / "net.onnx", proto)))


EXPECTED = SourceInterface(
    inputs=(
        SourceTensor(name="input_1", source="input.1", axes=(0, 3, 1, 2), dtype="float32"),
        SourceTensor(name="numbers", source="numbers", axes=(0, 1), dtype="int64"),
    ),
    outputs=(
        SourceTensor(name="features", source="features", axes=(0, 3, 1, 2), dtype="float32"),
        SourceTensor(name="head_scores", source="/head/scores", axes=(0, 1), dtype="float32"),
        SourceTensor(name="best", source="best", axes=(0,), dtype="int64"),
    ),
)


def test_names_layouts_and_types_are_those_of_the_file(tmp_path: Path) -> None:
    source = loaded(tmp_path)
    assert source.interface == EXPECTED
    names = [tensor.name for tensor in (*source.signature.inputs, *source.signature.outputs)]
    assert names == [tensor.name for tensor in EXPECTED.tensors()]


def test_a_written_source_keeps_them(tmp_path: Path) -> None:
    loaded(tmp_path).write(tmp_path / "source.keras")
    assert KerasSource.read(tmp_path / "source.keras").interface == EXPECTED
    KerasSource(loaded(tmp_path).network).write(tmp_path / "other.keras")
    assert KerasSource.read(tmp_path / "other.keras").interface is None
