#!/usr/bin/env bash
# ONNX 1.23.2: the reference evaluator ignores `sequence_lens` of RNN, GRU and LSTM.
#
# Expected: the state of an example stays what it was at the end of its sequence, and its later outputs are zeros, as in
# ONNX Runtime.
# Observed: `onnx.reference` computes all steps for each example, without an error or a warning: the results are those of
# the same network without `sequence_lens`.
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

STEPS, LENGTHS, UNITS = 5, np.array([2, 5], np.int32), 4
X = np.random.default_rng(0).normal(size=(STEPS, 2, 3)).astype(np.float32)


def network(operator, gates, with_lengths):
    rng = np.random.default_rng(1)
    weights = {
        "w": rng.normal(size=(1, gates * UNITS, 3)).astype(np.float32),
        "r": rng.normal(size=(1, gates * UNITS, UNITS)).astype(np.float32),
        "b": rng.normal(size=(1, 2 * gates * UNITS)).astype(np.float32),
        "lengths": LENGTHS,
    }
    inputs = ["x", "w", "r", "b", "lengths" if with_lengths else ""]
    node = helper.make_node(operator, inputs, ["y", "state"], hidden_size=UNITS)
    graph = helper.make_graph(
        [node],
        "recurrent",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [STEPS, 1, 2, UNITS]),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [1, 2, UNITS]),
        ],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def run_by_runtime(model, x):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
for operator, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
    model, whole = (network(operator, gates, with_lengths) for with_lengths in (True, False))
    reference, without = (ReferenceEvaluator(one).run(None, {"x": X}) for one in (model, whole))
    outputs, state = run_by_runtime(model, X)
    short = X.copy()
    short[LENGTHS[0] :, 0] = 0  # what stands behind the end of a sequence must not matter
    assert np.array_equal(state, run_by_runtime(model, short)[1])
    assert not outputs[LENGTHS[0] :, :, 0].any()
    differs = [float(np.abs(reference[1][0, example] - state[0, example]).max()) for example in (0, 1)]
    print(f"{operator}: state of the short and the long example differs from ONNX Runtime's by {differs}")
    assert differs[0] > 0.01 and differs[1] < 1e-5
    assert all(np.array_equal(*pair) for pair in zip(reference, without))
PYTHON
