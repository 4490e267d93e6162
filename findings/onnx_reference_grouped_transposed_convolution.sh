#!/usr/bin/env bash
# ONNX 1.23.2: the reference evaluator's ConvTranspose is wrong or fails with groups.
#
# Expected: each group of input channels is convolved with its own kernels, and makes its own output channels, as in
# the specification and ONNX Runtime.
# Observed: with two groups of one output channel and two input channels, `onnx.reference` selects the kernels of a
# group by output channels, and fails to reshape them. With three groups of a single input channel each, it is right.
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


def reference_of(channels, groups):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, channels, 5)).astype(np.float32)
    kernel = rng.normal(size=(channels, 1, 3)).astype(np.float32)
    tensors = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape),
        helper.make_tensor_value_info("k", TensorProto.FLOAT, kernel.shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, groups, 7]),
    ]
    node = helper.make_node("ConvTranspose", ["x", "k"], ["y"], group=groups)
    graph = helper.make_graph([node], "g", tensors[:2], tensors[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    runtime = session.run(None, {"x": x, "k": kernel})[0]
    each = channels // groups
    for group in range(groups):
        members = range(group * each, (group + 1) * each)
        own = [sum(np.convolve(x[n, c], kernel[c, 0]) for c in members) for n in range(2)]
        np.testing.assert_allclose(runtime[:, group], own, atol=1e-5)
    try:
        return np.allclose(ReferenceEvaluator(model).run(None, {"x": x, "k": kernel})[0], runtime, atol=1e-5)
    except ValueError as error:
        return str(error)


print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
print("3 channels, 3 groups:", reference_of(3, 3))
print("4 channels, 2 groups:", reference_of(4, 2))
assert reference_of(3, 3) is True
assert reference_of(4, 2) is not True
PYTHON
