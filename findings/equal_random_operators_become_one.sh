#!/usr/bin/env bash
# Optimizers of ONNX models merge random operators with equal inputs, so that their numbers are no longer independent.
#
# Expected: each of two nodes draws its own numbers, as the two samples of an autoencoder, or the masks of Monte Carlo
# dropout; an optimized model has the same distribution of outputs as the original.
# Observed: the elimination of common subexpressions makes one of two nodes, and the difference of the samples is always
# zero, without a warning. onnxoptimizer 0.4.2, onnxslim 0.1.98 and onnxsim 0.8.1 do so for all random operators that
# have an input, onnxslim also removes Dropout whose training mode is on; onnx-ir 1.1.0, which onnxscript uses, does so
# for Bernoulli and Dropout; ONNX Runtime 1.32.0 does so for Bernoulli, when it loads a model. With different values of
# `seed`, all nodes are kept.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet onnxoptimizer==0.4.2 onnxslim==0.1.98 onnxsim==0.8.1 onnx-ir==1.1.0 \
    onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnx_ir
import onnxoptimizer
import onnxruntime
import onnxsim
import onnxslim
from onnx import TensorProto, helper, numpy_helper
from onnx_ir.passes.common import CommonSubexpressionEliminationPass

print(*(f"{name} {version(name)}" for name in ("onnxoptimizer", "onnxslim", "onnxsim", "onnx-ir", "onnxruntime")))
SIZE = 1_000
inputs = np.full((1, SIZE), 0.5, np.float32)


def model(operator, *rest, **attributes):
    """Return a model that subtracts two samples of one distribution."""
    nodes = [helper.make_node(operator, ["x", *rest], [name], **attributes) for name in "ab"]
    rows = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, SIZE])
    differences = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, SIZE])
    constants = [numpy_helper.from_array(np.float32(0.5), "ratio"), numpy_helper.from_array(np.array(True), "training")]
    graph = helper.make_graph(
        [*nodes, helper.make_node("Sub", ["a", "b"], ["y"])], "g", [rows], [differences], constants[: len(rest)]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


def by_onnx_ir(original):
    read = onnx_ir.from_proto(original)
    CommonSubexpressionEliminationPass()(read)
    return onnx_ir.to_proto(read)


def differ(made, level=onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL):
    """Return whether the two samples differ, by ONNX Runtime without optimizations unless `level` allows some."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return bool(np.any(session.run(None, {"x": inputs})[0]))


for name, parts, kept in (
    ("RandomNormalLike", ["RandomNormalLike"], {"onnx-ir", "onnxruntime"}),
    ("RandomUniformLike", ["RandomUniformLike"], {"onnx-ir", "onnxruntime"}),
    ("Bernoulli", ["Bernoulli"], set()),
    ("Dropout in training mode", ["Dropout", "ratio", "training"], {"onnxruntime"}),
):
    made = model(*parts)
    assert differ(made)
    seen = {
        "onnxoptimizer": differ(onnxoptimizer.optimize(made)),
        "onnxslim": differ(onnxslim.slim(model(*parts))),
        "onnxsim": differ(onnxsim.simplify(made)[0]),
        "onnx-ir": differ(by_onnx_ir(made)),
        "onnxruntime": differ(made, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL),
    }
    print(f"{name}: samples differ after {[tool for tool in seen if seen[tool]]}")
    assert {tool for tool in seen if seen[tool]} == kept
PYTHON
