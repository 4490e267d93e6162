#!/usr/bin/env bash
# ONNX Runtime 1.32.0 removes each ReLU before a quantization: a quantized file read without its rounding is linear.
#
# Expected: a file in the format QDQ contains the operators of the float file, and pairs of `QuantizeLinear` and
# `DequantizeLinear`, so that a reader that leaves out the pairs gets the float network.
# Observed: no ReLU is left, since a range that begins at 0 limits the tensor as well. Without the pairs, the result of a
# convolution with a ReLU is negative. With the option QDQKeepRemovableActivations, the ReLU stays.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

rng = np.random.default_rng(0)
images = [rng.normal(size=(1, 3, 8, 8)).astype(np.float32) for _ in range(20)]
nodes = [helper.make_node("Conv", ["x", "k"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
graph = helper.make_graph(
    nodes,
    "net",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    [numpy_helper.from_array(rng.normal(size=(4, 3, 3, 3)).astype(np.float32), "k")],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "float.onnx")


class Images(CalibrationDataReader):
    def __init__(self):
        self.left = iter(images)

    def get_next(self):
        image = next(self.left, None)
        return None if image is None else {"x": image}


def kinds(path):
    return [node.op_type for node in onnx.load(path).graph.node]


print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
quantize_static("float.onnx", "removed.onnx", Images(), quant_format=QuantFormat.QDQ)
options = {"QDQKeepRemovableActivations": True}
quantize_static("float.onnx", "kept.onnx", Images(), quant_format=QuantFormat.QDQ, extra_options=options)
print("by default:", kinds("removed.onnx"))
print("with QDQKeepRemovableActivations:", kinds("kept.onnx"))
assert "Relu" not in kinds("removed.onnx")
assert "Relu" in kinds("kept.onnx")
session = onnxruntime.InferenceSession("removed.onnx", providers=["CPUExecutionProvider"])
assert session.run(None, {"x": images[0]})[0].min() == 0
PYTHON
