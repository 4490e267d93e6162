"""Small ONNX files, and the outputs that ONNX Runtime computes for them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

Array: TypeAlias = npt.NDArray[Any]
Shape: TypeAlias = Sequence[int | str | None]


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """Return a node; the names of its inputs and outputs are separated by spaces, and `-` is no input."""
    names = ["" if name == "-" else name for name in inputs.split()]
    made = helper.make_node(kind, names, outputs.split(), **attributes)
    made.name = made.name or f"/{kind}_{outputs.split(maxsplit=1)[0]}"
    return made


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape],
    weights: Mapping[str, Array],
    *,
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
    kind: int = TensorProto.FLOAT,
    output_kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """Return a model; an input's shape begins with its batch."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, output_kind, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def written(path: Path, proto: onnx.ModelProto) -> Path:
    """Write a model to a file."""
    path.write_bytes(proto.SerializeToString())
    return path


def outputs_of(path: Path, feed: Mapping[str, Array]) -> list[Array]:
    """Return the outputs of a file in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, dict(feed))]


def normal(*shape: int, scale: float = 0.3, seed: int = 0) -> Array:
    """Return float32 numbers of a normal distribution."""
    return (np.random.default_rng([seed, *shape]).normal(size=shape) * scale).astype(np.float32)


class _Rows(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, rows: Iterable[Mapping[str, Array]]) -> None:
        self._rows = iter(rows)

    def get_next(self) -> dict[str, Array] | None:
        row = next(self._rows, None)
        return None if row is None else dict(row)


def quantized(source: Path, path: Path, rows: Iterable[Mapping[str, Array]], **options: Any) -> Path:
    """Write a file as ONNX Runtime quantizes it, with `QuantizeLinear` and `DequantizeLinear`.

    Args:
        rows: Inputs with batch 1 for calibration.
        options: Those of `quantize_static`.
    """
    quantize_static(source, path, _Rows(rows), quant_format=QuantFormat.QDQ, **options)
    return path
