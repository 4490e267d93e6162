#!/usr/bin/env bash
# onnxoptimizer 0.4.2 merges a padding with zeros into max pools, and into average pools that leave out their own padding.
#
# Expected: optimization of a graph changes results by rounding alone.
# Observed: the padding of a max pool counts as minus infinity, so that a maximum over zeros and negative values becomes
# negative. Where an average pool has padding of its own that is not counted, the merged one is counted as a whole, and the
# means at the edges are too close to 0. There is no warning. Behind a ReLU, the max pool is right by chance. ONNX Runtime,
# ONNX's reference evaluator and NumPy agree on the file that is optimized.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet onnxoptimizer==0.4.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnxoptimizer
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

x = np.array([-1, -2, -3, -4], np.float32)


def model(operator, pads):
    graph = helper.make_graph(
        [
            helper.make_node("Pad", ["x", "widths"], ["padded"]),
            helper.make_node(operator, ["padded"], ["y"], kernel_shape=[1, 3], strides=[1, 1], pads=pads),
        ],
        "pool",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 1, 4 + sum(pads)])],
        [numpy_helper.from_array(np.array([0, 0, 0, 1, 0, 0, 0, 1], np.int64), "widths")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


def results(network):
    session = onnxruntime.InferenceSession(network.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x.reshape(1, 1, 1, 4)})[0].ravel()


padded = np.pad(x, 1)
print(*(f"{name} {version(name)}" for name in ("onnxoptimizer", "onnx", "onnxruntime")))
for operator, pads, expected, wrong in (
    ("MaxPool", [0, 0, 0, 0], [0, -1, -2, 0], [-1, -1, -2, -3]),
    ("AveragePool", [0, 1, 0, 1], [-1 / 2, -1, -2, -3, -7 / 3, -2], [-1 / 3, -1, -2, -3, -7 / 3, -4 / 3]),
    ("AveragePool", [0, 0, 0, 0], [-1, -2, -3, -7 / 3], [-1, -2, -3, -7 / 3]),
):
    windows = np.lib.stride_tricks.sliding_window_view(padded, 3)
    if not any(pads):
        np.testing.assert_allclose(windows.max(1) if operator == "MaxPool" else windows.mean(1), expected, rtol=1e-5)
    network = model(operator, pads)
    optimized = results(onnxoptimizer.optimize(network, onnxoptimizer.get_fuse_and_elimination_passes()))
    print(f"{operator} with pads {pads}: {results(network).round(2)}, optimized {optimized.round(2)}")
    np.testing.assert_allclose(results(network), expected, rtol=1e-5)
    (reference,) = ReferenceEvaluator(network).run(None, {"x": x.reshape(1, 1, 1, 4)})
    np.testing.assert_allclose(reference.ravel(), expected, rtol=1e-5)
    np.testing.assert_allclose(optimized, wrong, rtol=1e-5)
PYTHON
