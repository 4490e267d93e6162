#!/usr/bin/env bash
# ONNX 1.23.2: the reference evaluator's GlobalMaxPool reduces the wrong axes unless there are two spatial ones.
#
# Expected: the maximum over all axes from 2 on, each of which becomes 1, as in the specification and ONNX Runtime.
# Observed: `onnx.reference` reduces two axes, the first of which is the number of spatial axes: the channels and the
# positions of a signal, and the last two axes of a volume. For images, it is right.
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


def is_right(*shape):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    tensors = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [*shape[:2], *[1] * (len(shape) - 2)]),
    ]
    graph = helper.make_graph([helper.make_node("GlobalMaxPool", ["x"], ["y"])], "g", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    runtime = session.run(None, {"x": x})[0]
    np.testing.assert_array_equal(runtime, x.max(axis=tuple(range(2, x.ndim)), keepdims=True))
    reference = ReferenceEvaluator(model).run(None, {"x": x})[0]
    print(f"{shape}: reference {reference.shape}, onnxruntime {runtime.shape}")
    return reference.shape == runtime.shape and np.array_equal(reference, runtime)


print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
assert is_right(2, 6, 7, 8)
assert not is_right(2, 6, 7)
assert not is_right(2, 6, 3, 4, 5)
PYTHON
