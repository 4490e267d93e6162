#!/usr/bin/env bash
# onnxscript 0.7.2: its optimizer removes the addition of a number up to 1e-8, so that log(p + 1e-9) of zero is infinite.
#
# Expected: only an addition of 0 is removed. The small number in log(p + 1e-9) or x / (sum + 1e-8) is there for the case
# that the rest is 0, where it decides about the result.
# Observed: constants are compared with 0 within 1e-8, whatever they are added to. The logarithm of 0 becomes -inf instead
# of -20.7, and the quotient of zeros NaN instead of 0. With 2e-8, the addition stays. Factors within 1e-5 of 1 are removed
# as well. ONNX Runtime and ONNX's reference evaluator agree on both files. PyTorch's exporter with `dynamo=True` runs this
# optimizer, unless `optimize=False`: torch.log(p + 1e-9) is log(p) in the file.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet onnxscript==0.7.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnxruntime
import onnxscript.optimizer
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

x = np.array([0, 0.25, 1], np.float32)


def model(constant, *nodes):
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
        [numpy_helper.from_array(np.array(constant, np.float32), "constant")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


def results(network):
    """Return what ONNX Runtime computes, after a comparison with the reference evaluator."""
    session = onnxruntime.InferenceSession(network.SerializeToString(), providers=["CPUExecutionProvider"])
    (outputs,) = session.run(None, {"x": x})
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(outputs, ReferenceEvaluator(network).run(None, {"x": x})[0], rtol=1e-5)
    return outputs


plus = helper.make_node("Add", ["x", "constant"], ["sum"])
logarithm = helper.make_node("Log", ["sum"], ["y"])
quotient = helper.make_node("Div", ["x", "sum"], ["y"])
print(*(f"{name} {version(name)}" for name in ("onnxscript", "onnx", "onnxruntime")))
for name, network, expected, right in (
    ("log(x + 1e-9)", model(1e-9, plus, logarithm), np.log(x + np.float32(1e-9)), False),
    ("log(x + 2e-8)", model(2e-8, plus, logarithm), np.log(x + np.float32(2e-8)), True),
    ("x / (x + 1e-8)", model(1e-8, plus, quotient), x / (x + np.float32(1e-8)), False),
):
    optimized = results(onnxscript.optimizer.optimize(network))
    print(f"{name}: {results(network).tolist()}, optimized {optimized.tolist()}")
    np.testing.assert_allclose(results(network), expected, rtol=1e-5)
    assert np.isfinite(expected[0]) and np.isfinite(optimized[0]) == right
    np.testing.assert_allclose(optimized[1:], expected[1:], rtol=1e-5)
PYTHON
