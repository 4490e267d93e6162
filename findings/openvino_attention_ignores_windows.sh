#!/usr/bin/env bash
# OpenVINO 2026.4.1 reads ONNX models with sliding windows of attention as if there were no windows.
#
# Expected: `left_window_size` and `right_window_size` of Attention limit how far each query looks back and ahead (ONNX
# operators, Attention, opset 25); a reader that does not know them refuses the model, as it does for operators.
# Observed: the model is loaded and run without a warning, with attention over the whole sequence. The results of
# networks with local attention are wrong for sequences longer than the window, and right for the short ones of tests,
# and they take the time and memory of full attention. ONNX's reference evaluator agrees with NumPy.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet openvino==2026.4.1 onnx==1.23.2 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

print(*(f"{name} {version(name)}" for name in ("openvino", "onnx")))
length, size = 6, 4
generator = np.random.default_rng(0)
inputs = [generator.normal(size=(1, 1, length, size)).astype(np.float32) for _ in range(3)]


def exact(left, right):
    """Return the attention of queries to the keys from `left` places before to `right` places behind them."""
    queries, keys, values = (array[0, 0].astype(np.float64) for array in inputs)
    scores = queries @ keys.T / np.sqrt(size)
    ahead = np.arange(length) - np.arange(length)[:, None]
    weights = np.exp(scores) * (ahead >= -left) * (ahead <= right)
    return weights / weights.sum(1, keepdims=True) @ values


def attention(**attributes):
    names = ("queries", "keys", "values")
    graph = helper.make_graph(
        [helper.make_node("Attention", names, ["outputs"], **attributes)],
        "attention",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, inputs[0].shape) for name in names],
        [helper.make_tensor_value_info("outputs", TensorProto.FLOAT, inputs[0].shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)
    onnx.checker.check_model(model, full_check=True)
    reference = ReferenceEvaluator(model).run(None, dict(zip(names, inputs)))[0][0, 0]
    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    return np.asarray(compiled(inputs)[0])[0, 0], reference


for name, attributes, left, right in (
    ("full", {}, length, length),
    ("causal", {"is_causal": 1}, length, 0),
    ("causal with a window of 1", {"is_causal": 1, "left_window_size": 1}, 1, 0),
    ("with a window from 1 before to 2 behind", {"left_window_size": 1, "right_window_size": 2}, 1, 2),
):
    by_openvino, by_reference = attention(**attributes)
    right_result = exact(left, right)
    without_window = exact(length, 0 if "is_causal" in attributes else length)
    error = np.abs(by_openvino - right_result).max()
    print(f"attention, {name}: largest error {error:.6f}")
    np.testing.assert_allclose(by_reference, right_result, atol=1e-5)
    np.testing.assert_allclose(by_openvino, without_window, atol=1e-5)
    assert (error > 0.1) == ("window" in name)
PYTHON
