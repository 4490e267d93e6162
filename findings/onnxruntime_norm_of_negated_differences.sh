#!/usr/bin/env bash
# ONNX Runtime 1.32.0 turns operators that resemble a layer norm into one, though they compute something else.
#
# Expected: optimization of a graph changes results by rounding alone.
# Observed: (mean - x) / deviation gets the other sign, since the optimizer does not look at the order of the difference,
# and with another exponent than 2 in the deviation, the variance is used all the same. Without optimization, ONNX Runtime
# computes what the reference evaluator and NumPy do. Optimization is on by default.
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

SCALE, OFFSET = np.array([1, 2, 3, 4], np.float32), np.array([0.5, 0, 0, 0], np.float32)
x = np.array([[1, 2, 4, 9], [3, -1, 0, 2]], np.float32)


def network(difference, exponent):
    constants = {"exponent": exponent, "epsilon": 0.1, "scale": SCALE, "offset": OFFSET}
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[-1]),
        helper.make_node("Sub", difference, ["apart"]),
        helper.make_node("Pow", ["apart", "exponent"], ["powers"]),
        helper.make_node("ReduceMean", ["powers"], ["moment"], axes=[-1]),
        helper.make_node("Add", ["moment", "epsilon"], ["sum"]),
        helper.make_node("Sqrt", ["sum"], ["deviation"]),
        helper.make_node("Div", ["apart", "deviation"], ["normal"]),
        helper.make_node("Mul", ["normal", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "offset"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "norm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
        [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def run(model, level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


levels = onnxruntime.GraphOptimizationLevel
print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
for name, difference, sign, exponent in (
    ("x - mean", ["x", "mean"], 1, 2),
    ("mean - x", ["mean", "x"], -1, 2),
    ("x - mean, to the fourth", ["x", "mean"], 1, 4),
):
    model = network(difference, exponent)
    apart = x - x.mean(-1, keepdims=True)
    expected = sign * apart / np.sqrt((apart**exponent).mean(-1, keepdims=True) + 0.1) * SCALE + OFFSET
    optimized, plain = run(model, levels.ORT_ENABLE_ALL), run(model, levels.ORT_DISABLE_ALL)
    print(f"{name}: optimized {optimized[0]}, plain {plain[0]}, expected {expected[0]}")
    np.testing.assert_allclose(plain, expected, rtol=1e-4)
    np.testing.assert_allclose(ReferenceEvaluator(model).run(None, {"x": x})[0], expected, rtol=1e-4)
    norm = apart / np.sqrt((apart**2).mean(-1, keepdims=True) + 0.1) * SCALE + OFFSET
    np.testing.assert_allclose(optimized, norm, rtol=1e-4)
    assert np.allclose(expected, norm) == (name == "x - mean")
PYTHON
