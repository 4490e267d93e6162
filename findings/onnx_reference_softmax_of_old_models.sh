#!/usr/bin/env bash
# ONNX 1.23.2: the reference evaluator computes Softmax of models before opset 13 along one axis alone.
#
# Expected: before opset 13, `axis` of Softmax, LogSoftmax and Hardmax says from where on the axes are flattened: with
# axis 1 (the default), all values of an example become probabilities that add up to 1. ONNX Runtime does so.
# Observed: `onnx.reference` applies the meaning of opset 13 to models of any opset: with axis 1, the probabilities of
# each position add up to 1. Inputs with two axes, or the last axis, hide the difference.
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

SHAPE = (2, 3, 4)
X = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)


def probabilities(opset):
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy"]
    graph = helper.make_graph([node], "softmax", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=6)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return ReferenceEvaluator(model).run(None, {"x": X})[0], session.run(None, {"x": X})[0]


flattened = np.exp(X) / np.exp(X).sum(axis=(1, 2), keepdims=True)
along_axis = np.exp(X) / np.exp(X).sum(axis=1, keepdims=True)
print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
for opset in (7, 11, 12, 13):
    reference, runtime = probabilities(opset)
    sums = [float(one[0].sum()) for one in (reference, runtime)]
    print(f"opset {opset}: an example's probabilities add up to {sums[0]:.1f} and {sums[1]:.1f} (ONNX Runtime)")
    np.testing.assert_allclose(reference, along_axis, rtol=1e-5)
    np.testing.assert_allclose(runtime, flattened if opset < 13 else along_axis, rtol=1e-5)
PYTHON
