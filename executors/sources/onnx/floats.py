"""The float32 network of a file in half precision, or of one with simulated quantization."""

from pathlib import Path
from typing import Final

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from executors.inspection.errors import invalid
from executors.sources.errors import first_line
from executors.sources.onnx.graph import with_inner

_HALVES: Final = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


#: A version in which the reference evaluator has `DequantizeLinear`; earlier ones compute the same.
_DEQUANTIZING: Final = 19


def make_float(path: Path, model: ModelProto) -> None:
    """Change a model in place to compute in float32, without the rounding of simulated quantization.

    Raises:
        MistifyError: INVALID_MODEL if the scales of quantized weights do not fit them.
    """
    _dequantize_weights(path, model.graph)
    _without_rounding(model.graph)
    _without_halves(model.graph)


def _dequantize_weights(path: Path, graph: GraphProto) -> None:
    """Replace stored integers and their scales with the numbers that they stand for."""
    stored = {weight.name: weight for weight in graph.initializer}
    for node in [node for node in graph.node if node.op_type == "DequantizeLinear"]:
        if not all(name in stored for name in node.input):
            continue
        alone = helper.make_graph(
            [node],
            "node",
            [],
            [helper.make_empty_tensor_value_info(node.output[0])],
            [stored[name] for name in node.input],
        )
        versions = [helper.make_opsetid("", _DEQUANTIZING)]
        try:
            (weight,) = ReferenceEvaluator(helper.make_model(alone, opset_imports=versions)).run(None, {})
        except Exception as error:  # the evaluator raises whatever numpy does
            raise invalid(
                path,
                f"node DequantizeLinear {node.name[:100]}, which cannot be computed ({first_line(error)})",
                "scales and zero points that fit the weights",
                "export it again",
            ) from error
        graph.initializer.append(numpy_helper.from_array(weight, node.output[0]))
        graph.node.remove(node)


def _without_rounding(graph: GraphProto) -> None:
    """Replace each quantization that is only followed by its inverse with the identity."""
    quantized = {node.output[0]: node for node in graph.node if node.op_type == "QuantizeLinear"}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in quantized:
            source = quantized[node.input[0]].input[0]
            node.CopyFrom(helper.make_node("Identity", [source], [node.output[0]], name=node.name))
    read = {name for node in with_inner(graph.node) for name in node.input}
    read |= {output.name for output in graph.output}
    unread = [node for name, node in quantized.items() if name not in read]
    for node in unread:
        graph.node.remove(node)


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
