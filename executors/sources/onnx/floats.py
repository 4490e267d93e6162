"""The float32 network of a file in half precision, or of one with simulated quantization."""

from pathlib import Path
from typing import Final

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from executors.sources.contract import Range
from executors.sources.onnx.graph import with_inner
from executors.sources.onnx.quantized import without_quantization

_HALVES: Final = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def make_float(path: Path, model: ModelProto, version: int) -> dict[str, Range]:
    """Change a model in place to compute in float32, without the rounding of simulated quantization.

    Args:
        version: The version of the operator set.

    Returns:
        Tensor -> the range of its integers, where the file simulates quantization.

    Raises:
        MistifyError: INVALID_MODEL if the scales of quantized weights do not fit them.
    """
    ranges = without_quantization(path, model.graph, version)
    _without_halves(model.graph)
    return ranges


def _without_halves(graph: GraphProto) -> None:
    tensors = list(graph.initializer)
    for node in with_inner(graph.node):
        tensors += [attribute.t for attribute in node.attribute if attribute.HasField("t")]
        _cast_to_float(node)
    for tensor in tensors:
        if tensor.data_type in _HALVES:
            array = numpy_helper.to_array(tensor).astype("float32")
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in _HALVES:
            value.type.tensor_type.elem_type = TensorProto.FLOAT


def _cast_to_float(node: NodeProto) -> None:
    if node.op_type != "Cast":
        return
    for attribute in node.attribute:
        if attribute.name == "to" and attribute.i in _HALVES:
            attribute.i = TensorProto.FLOAT
