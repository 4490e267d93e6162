#!/usr/bin/env bash
# ONNX 1.23.2: the reference evaluator moves the windows of average pools with `ceil_mode`, drops one of a max pool with
# SAME_LOWER, and moves those of a padded max pool with `ceil_mode`.
#
# Expected: with `ceil_mode`, a window that reaches beyond the end is added, and the others stay where they are: the
# values 0 to 6 by windows of three have the means 1, 4, 6. With SAME_LOWER, as with SAME_UPPER, seven values by strides
# of two have ceil(7 / 2) = 4 results. ONNX Runtime does both, and so does ONNX's own shape inference.
# Observed: `onnx.reference` pads the beginning, too: its means are 0.5, 3, 5. Its max pool has three results with
# SAME_LOWER, although average pools have four, and the file declares four. With `ceil_mode` and one value of padding at
# each end, the first of seven windows of three is missing. For images, there are two too many along each axis.
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

X = np.arange(7, dtype=np.float32).reshape(1, 1, 7)


def pooled(operator, results, **attributes):
    node = helper.make_node(operator, ["x"], ["y"], kernel_shape=[3], **attributes)
    graph = helper.make_graph(
        [node],
        "pool",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, results])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)  # infers the shape, and compares it with the declared one
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    reference, runtime = ReferenceEvaluator(model).run(None, {"x": X})[0], session.run(None, {"x": X})[0]
    print(f"{operator} {attributes}: reference {reference.ravel()}, onnxruntime {runtime.ravel()}")
    return reference.ravel().tolist(), runtime.ravel().tolist()


print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
assert pooled("AveragePool", 3, strides=[3], ceil_mode=1) == ([0.5, 3, 5], [1, 4, 6])
assert pooled("MaxPool", 3, strides=[3], ceil_mode=1) == ([2, 5, 6], [2, 5, 6])
assert pooled("MaxPool", 7, pads=[1, 1], ceil_mode=1) == ([2, 3, 4, 5, 6, 6], [1, 2, 3, 4, 5, 6, 6])
assert pooled("MaxPool", 4, strides=[2], auto_pad="SAME_LOWER") == ([2, 4, 6], [1, 3, 5, 6])
assert pooled("MaxPool", 4, strides=[2], auto_pad="SAME_UPPER") == ([1, 3, 5, 6], [1, 3, 5, 6])
assert pooled("AveragePool", 4, strides=[2], auto_pad="SAME_LOWER") == ([0.5, 2, 4, 5.5], [0.5, 2, 4, 5.5])
PYTHON
