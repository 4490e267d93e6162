#!/usr/bin/env bash
# ONNX 1.23.2: the reference evaluator computes LSTM and GRU with their default activations, whatever the node says.
#
# Expected: the functions in the attribute `activations`, as in the specification and ONNX Runtime.
# Observed: `onnx.reference` returns other numbers without a word for LSTM and GRU. For RNN, it raises an error for
# every function except Tanh and Affine, even for Relu and Sigmoid, which the specification names.
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

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def last_states(operator, activations):
    """Return the last hidden state by ONNX Runtime, and by the reference: numbers, or its error."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 1, 2)).astype(np.float32)
    weights = [
        numpy_helper.from_array(rng.normal(size=(1, 2 * GATES[operator], 2)).astype(np.float32), name)
        for name in ("w", "r")
    ]
    node = helper.make_node(operator, ["x", "w", "r"], ["", "h"], hidden_size=2, activations=activations)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    outputs = [helper.make_tensor_value_info("h", TensorProto.FLOAT, [1, 1, 2])]
    graph = helper.make_graph([node], "g", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    runtime = session.run(None, {"x": x})[0].ravel()
    try:
        reference = ReferenceEvaluator(model).run(None, {"x": x})[0].ravel()
    except RuntimeError as error:
        reference = str(error)
    print(f"{operator} {activations}: reference {reference}, onnxruntime {runtime}")
    return runtime, reference


print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
for operator, activations in (("RNN", ["Tanh"]), ("GRU", ["Sigmoid", "Tanh"]), ("LSTM", ["Sigmoid", "Tanh", "Tanh"])):
    np.testing.assert_allclose(*last_states(operator, activations), rtol=1e-5)
for operator, activations in (
    ("GRU", ["Sigmoid", "Relu"]),
    ("LSTM", ["HardSigmoid", "Tanh", "Tanh"]),
    ("LSTM", ["Sigmoid", "Relu", "Relu"]),
):
    runtime, reference = last_states(operator, activations)
    assert not isinstance(reference, str)
    assert np.abs(runtime - reference).max() > 1e-3
for name in ("Relu", "Sigmoid"):
    runtime, reference = last_states("RNN", [name])
    assert reference == f"Unknown activation function '{name}'."
PYTHON
