#!/usr/bin/env bash
# ONNX 1.23.2 and ONNX Runtime 1.32.0 resize with aligned corners differently, if a scale gives a fraction of a pixel.
#
# Expected: with `align_corners`, the first and the last result are the first and the last value, whether the size is
# given (10) or follows from a scale (7 * 1.5 = 10.5, rounded down).
# Observed: given the scale, `onnx.reference` computes positions with 10.5 instead of 10 results, so that the last result
# is not the last value (5.68 instead of 6). ONNX Runtime uses 10. Given the size, both agree.
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
from onnx.reference import ReferenceEvaluator

X = np.arange(7, dtype=np.float32).reshape(1, 1, 7)


def resized(inputs, constant):
    node = helper.make_node("Resize", inputs, ["y"], mode="linear", coordinate_transformation_mode="align_corners")
    graph = helper.make_graph(
        [node],
        "resize",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 10])],
        [numpy_helper.from_array(constant, "amount")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return ReferenceEvaluator(model).run(None, {"x": X})[0].ravel(), session.run(None, {"x": X})[0].ravel()


print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
by_scale = resized(["x", "", "amount"], np.array([1, 1, 1.5], np.float32))
by_size = resized(["x", "", "", "amount"], np.array([1, 1, 10], np.int64))
for name, (reference, runtime) in (("scale 1.5", by_scale), ("size 10", by_size)):
    print(f"{name}: last of {len(reference)} results: reference {reference[-1]:.2f}, onnxruntime {runtime[-1]:.2f}")
corners = np.linspace(0, 6, 10)
for right in (*by_size, by_scale[1]):
    np.testing.assert_allclose(right, corners, atol=1e-5)
np.testing.assert_allclose(by_scale[0], np.arange(10) * 6 / 9.5, atol=1e-5)
PYTHON
