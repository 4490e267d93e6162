#!/usr/bin/env bash
# ONNX 1.23.2: the reference evaluator's LpNormalization with p = 1 divides by the sum, not by the norm.
#
# Expected: 1, -2, 3 become 1/6, -1/3, 1/2, as in ONNX Runtime: the L1 norm is 6.
# Observed: `onnx.reference` divides by 1 - 2 + 3 = 2. If the values add up to little, the result is very large; if their
# sum is negative, all signs are turned. With p = 2 it is right.
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
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator


def normalized(p, values):
    x = np.array([values], np.float32)
    node = helper.make_node("LpNormalization", ["x"], ["y"], axis=1, p=p)
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in "xy"]
    graph = helper.make_graph([node], "norm", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    reference, runtime = ReferenceEvaluator(model).run(None, {"x": x})[0], session.run(None, {"x": x})[0]
    print(f"p = {p}, {values}: reference {reference.ravel()}, onnxruntime {runtime.ravel()}")
    np.testing.assert_allclose(runtime, x / np.linalg.norm(x, ord=p, axis=1, keepdims=True), rtol=1e-6)
    return reference


print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
np.testing.assert_allclose(normalized(1, [1, -2, 3]), [[1 / 2, -1, 3 / 2]])
np.testing.assert_allclose(normalized(1, [1, -3, 1]), [[-1, 3, -1]])
np.testing.assert_allclose(normalized(2, [1, -2, 2]), [[1 / 3, -2 / 3, 2 / 3]], rtol=1e-6)
PYTHON
