#!/usr/bin/env bash
# onnx2torch 1.5.15 computes cumulative sums from the end, unless the file says that they are not reversed.
#
# Expected: CumSum of 1, 2, 3, 4 is 1, 3, 6, 10, as in ONNX Runtime, ONNX's reference evaluator and NumPy: `reverse` is 0 by
# default.
# Observed: without the attribute, which PyTorch's older exporter leaves out, it is 10, 9, 7, 4; with `exclusive`, it is 9, 7,
# 4, 0 instead of 0, 1, 3, 6. There is no error or warning. With `reverse` set to 0 the result is right. Language models
# compute the positions of tokens from a mask in this way.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet torch==2.13.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
# onnx2torch imports torchvision for boxes alone, which this example does not have: a module without them is enough.
"$directory/venv/bin/pip" install --quiet --no-deps onnx2torch==1.5.15
cd "$directory"
mkdir torchvision
touch torchvision/__init__.py
echo "roi_align = None" > torchvision/ops.py
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnx2torch
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

x = np.array([[1, 2, 3, 4]], np.float32)


def model(**attributes):
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("CumSum", ["x", "axis"], ["y"], **attributes)],
        "sums",
        tensors[:1],
        tensors[1:],
        [numpy_helper.from_array(np.array(1, np.int64), "axis")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


print(*(f"{name} {version(name)}" for name in ("onnx2torch", "torch", "onnx", "onnxruntime")))
for attributes, expected, wrong in (
    ({}, [1, 3, 6, 10], [10, 9, 7, 4]),
    ({"reverse": 0}, [1, 3, 6, 10], [1, 3, 6, 10]),
    ({"reverse": 1}, [10, 9, 7, 4], [10, 9, 7, 4]),
    ({"exclusive": 1}, [0, 1, 3, 6], [9, 7, 4, 0]),
):
    made = model(**attributes)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0][0], expected)
    np.testing.assert_array_equal(ReferenceEvaluator(made).run(None, {"x": x})[0][0], expected)
    in_torch = onnx2torch.convert(made).eval()(torch.from_numpy(x.copy())).numpy()[0]
    print(f"CumSum {attributes}: {in_torch.tolist()}, expected {expected}")
    assert in_torch.tolist() == wrong
PYTHON
