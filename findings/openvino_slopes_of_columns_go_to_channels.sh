#!/usr/bin/env bash
# OpenVINO 2026.4.1 applies the slopes of a PRelu to channels instead of columns, if there are as many of both.
#
# Expected: ONNX broadcasts slopes from the last axis on, so that four slopes belong to the four columns of an image, and
# slopes for channels have the shape 4 x 1 x 1, as PyTorch's exporter writes them.
# Observed: four slopes are taken for those of four channels, although the image has four columns, without a warning. ONNX
# Runtime, ONNX's reference evaluator and NumPy agree on the columns. With slopes of the shape 1 x 1 x 1 x 4, OpenVINO is right.
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
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

SHAPE = (1, 4, 3, 4)
x = -np.ones(SHAPE, np.float32)
slopes = np.array([1, 2, 3, 4], np.float32)


def model(shape):
    graph = helper.make_graph(
        [helper.make_node("PRelu", ["x", "slopes"], ["y"])],
        "prelu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)],
        [numpy_helper.from_array(slopes.reshape(shape), "slopes")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


print(*(f"{name} {version(name)}" for name in ("openvino", "onnx", "onnxruntime")))
for shape, right in (((4, 1, 1), True), ((1, 1, 1, 4), True), ((4,), False)):
    made, expected = model(shape), x * slopes.reshape(shape)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)
    np.testing.assert_array_equal(ReferenceEvaluator(made).run(None, {"x": x})[0], expected)
    onnx.save(made, "prelu.onnx")
    in_openvino = openvino.Core().compile_model("prelu.onnx", "CPU")([x])[0]
    rows = [each[0, :, 0].tolist() for each in (in_openvino, expected)]
    print(f"slopes {shape}: first row of each channel {rows[0]}, expected {rows[1]}")
    np.testing.assert_array_equal(in_openvino, expected if right else x * slopes.reshape(4, 1, 1))
PYTHON
