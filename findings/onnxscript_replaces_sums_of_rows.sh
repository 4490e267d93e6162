#!/usr/bin/env bash
# onnxscript 0.7.2: its optimizer replaces a ScatterND that adds to each row by what is added.
#
# Expected: optimization of a graph changes results by rounding alone.
# Observed: a ScatterND whose constant indices name every row in order is taken for an assignment of all rows, whatever its
# attribute `reduction` says: the data are lost, and 10 + 1 becomes 1. The same holds for products, minima and maxima. ONNX
# Runtime and ONNX's reference evaluator agree on both files. PyTorch's exporter with `dynamo=True` runs this optimizer,
# unless `optimize=False`: x.index_add(0, torch.arange(len(x)), u) is u in the file.
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

data, updates = np.array([[10, 20], [30, 40]], np.float32), np.array([[1, 50], [3, 4]], np.float32)


def model(rows, reduction):
    node = helper.make_node("ScatterND", ["data", "indices", "updates"], ["y"], reduction=reduction)
    graph = helper.make_graph(
        [node],
        "scatter",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in ("data", "updates")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
        [numpy_helper.from_array(np.array(rows, np.int64)[:, None], "indices")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


def results(network):
    """Return what ONNX Runtime computes, after a comparison with the reference evaluator."""
    feeds = {"data": data, "updates": updates}
    session = onnxruntime.InferenceSession(network.SerializeToString(), providers=["CPUExecutionProvider"])
    (outputs,) = session.run(None, feeds)
    np.testing.assert_array_equal(outputs, ReferenceEvaluator(network).run(None, feeds)[0])
    return outputs


print(*(f"{name} {version(name)}" for name in ("onnxscript", "onnx", "onnxruntime")))
for reduction, rows, expected, right in (
    ("none", [0, 1], updates, True),
    ("add", [0, 1], data + updates, False),
    ("mul", [0, 1], data * updates, False),
    ("min", [0, 1], np.minimum(data, updates), False),
    ("max", [0, 1], np.maximum(data, updates), False),
    ("add", [1, 0], data + updates[::-1], True),
):
    network = model(rows, reduction)
    optimized = results(onnxscript.optimizer.optimize(network))
    print(f"{reduction} to rows {rows}: {results(network).tolist()}, optimized {optimized.tolist()}")
    np.testing.assert_array_equal(results(network), expected)
    assert np.array_equal(optimized, expected) == right
    assert right or np.array_equal(optimized, updates)
PYTHON
