#!/usr/bin/env bash
# OpenVINO 2026.4.1 computes Softmax of ONNX models with opset 11 and 12 along one axis alone.
#
# Expected: before opset 13, `axis` of Softmax and LogSoftmax says from where on the axes are flattened: with axis 1 (the
# default), all values of an example become probabilities that add up to 1. ONNX Runtime does so.
# Observed: OpenVINO does so for Softmax up to opset 10, and for LogSoftmax up to 12. Softmax of opset 11 and 12 has the
# meaning of opset 13, though still the old default: the probabilities of each position add up to 1. There is no warning.
# Inputs with two axes, or the last axis, hide the difference.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet openvino==2026.4.1 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper

SHAPE = (2, 3, 4)
x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)


def model(operator, opset):
    node = helper.make_node(operator, ["x"], ["y"], axis=1)
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy"]
    graph = helper.make_graph([node], "softmax", tensors[:1], tensors[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=6)
    onnx.checker.check_model(made, full_check=True)
    return made


flattened = np.exp(x) / np.exp(x).sum(axis=(1, 2), keepdims=True)
along_axis = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
print(*(f"{name} {version(name)}" for name in ("openvino", "onnx", "onnxruntime")))
for operator, opset, right in (
    ("Softmax", 9, True),
    ("Softmax", 11, False),
    ("Softmax", 12, False),
    ("Softmax", 13, True),
    ("LogSoftmax", 12, True),
):
    made = model(operator, opset)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (runtime,) = session.run(None, {"x": x})
    onnx.save(made, "softmax.onnx")
    in_openvino = openvino.Core().compile_model("softmax.onnx", "CPU")([x])[0]
    if operator == "LogSoftmax":
        runtime, in_openvino = np.exp(runtime), np.exp(in_openvino)
    sums = [float(one[0].sum()) for one in (in_openvino, runtime)]
    print(f"{operator} of opset {opset}: an example adds up to {sums[0]:.1f}, and in ONNX Runtime to {sums[1]:.1f}")
    expected = flattened if opset < 13 else along_axis
    np.testing.assert_allclose(runtime, expected, rtol=1e-4)
    np.testing.assert_allclose(in_openvino, expected if right else along_axis, rtol=1e-3)
PYTHON
