#!/usr/bin/env bash
# MNN 3.6.1 computes norms of ONNX models over all axes, whatever the axes of the operator.
#
# Expected: since opset 18, the axes of ReduceL1, ReduceL2, ReduceSumSquare, ReduceLogSum and ReduceLogSumExp are an
# input, as those of ReduceSum have been since 13. A converter reads a constant there, or refuses the model.
# Observed: its converter ignores the axes of these five, and reduces over all of them, so that there is one number for
# the whole batch, without a warning. Exporters of opset 18 and later write the normalization of embeddings as a
# ReduceL2 and a division: each vector is then divided by the norm of all vectors of the batch, and its result depends
# on what else is in there. ReduceSum, ReduceMean, ReduceMax and ReduceProd in the same opset are right, and so is
# ReduceL2 of opset 13.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet MNN==3.6.1 onnx==1.23.2 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import subprocess
import sys
from importlib.metadata import version

import MNN
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

print("MNN", version("MNN"))
# The function behind the command `mnnconvert`, which installs other packages when it runs.
CONVERT = "import _tools; _tools.mnnconvert('mnnconvert -f ONNX --modelFile model.onnx --MNNModel model.mnn'.split())"


def by_mnn(operator, x, axis, opset=18):
    """Return what MNN computes for a reduction of one axis."""
    axes = numpy_helper.from_array(np.array([axis]), "axes")
    if opset < 18 and operator != "ReduceSum":
        node, initializers = helper.make_node(operator, ["x"], ["y"], axes=[axis], keepdims=1), []
    else:
        node, initializers = helper.make_node(operator, ["x", "axes"], ["y"], keepdims=1), [axes]
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [len(x), 1])
    graph = helper.make_graph([node], "graph", [source], [result], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, "model.onnx")
    subprocess.run([sys.executable, "-c", CONVERT], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    module = MNN.nn.load_module_from_file("model.mnn", ["x"], ["y"])
    output = module.forward(MNN.expr.const(x, list(x.shape), MNN.expr.NCHW, MNN.expr.float))
    return np.array(output.read()).reshape(output.shape)


x = np.float32([[3, 4, 12], [1, 2, 2]])
for operator, opset, exact in (
    ("ReduceSum", 18, lambda x, **axes: x.sum(**axes)),
    ("ReduceMean", 18, lambda x, **axes: x.mean(**axes)),
    ("ReduceMax", 18, lambda x, **axes: x.max(**axes)),
    ("ReduceProd", 18, lambda x, **axes: x.prod(**axes)),
    ("ReduceL2", 13, lambda x, **axes: np.sqrt((x * x).sum(**axes))),
    ("ReduceL2", 18, lambda x, **axes: np.sqrt((x * x).sum(**axes))),
    ("ReduceL1", 18, lambda x, **axes: np.abs(x).sum(**axes)),
    ("ReduceSumSquare", 18, lambda x, **axes: (x * x).sum(**axes)),
    ("ReduceLogSum", 18, lambda x, **axes: np.log(x.sum(**axes))),
    ("ReduceLogSumExp", 18, lambda x, **axes: np.log(np.exp(x).sum(**axes))),
):
    seen, right = by_mnn(operator, x, 1, opset), exact(x, axis=1, keepdims=True)
    print(f"{operator} of opset {opset}: MNN {seen.tolist()}, exactly {right.tolist()}")
    if opset == 18 and operator not in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceProd"):
        np.testing.assert_allclose(seen, exact(x, axis=None, keepdims=True), rtol=1e-4)
    else:
        np.testing.assert_allclose(seen, right, rtol=1e-4)
PYTHON
