#!/usr/bin/env bash
# ONNX Runtime 1.32.0 loads a dilated convolution with SAME padding, but refuses to run it.
#
# Expected: the padding that `auto_pad` SAME_UPPER stands for follows from the dilated kernel, as in ONNX's shape
# inference and its reference evaluator.
# Observed: the session is created; the first run raises "Dilation not supported for AutoPadType". The same network with
# the padding as numbers runs. A reader of ONNX files has to accept such a model without being able to compare it.
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
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1, 2, 7, 7)).astype(np.float32)
KERNEL = RNG.normal(size=(4, 2, 3, 3)).astype(np.float32)


def network(**padding):
    node = helper.make_node("Conv", ["x", "w"], ["y"], dilations=[2, 2], **padding)
    graph = helper.make_graph(
        [node],
        "conv",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 7, 7])],
        [numpy_helper.from_array(KERNEL, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def session_of(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
same, explicit = network(auto_pad="SAME_UPPER"), network(pads=[2, 2, 2, 2])
(reference,) = ReferenceEvaluator(same).run(None, {"x": X})
(runtime,) = session_of(explicit).run(None, {"x": X})
print("reference with SAME_UPPER against ONNX Runtime with pads:", abs(reference - runtime).max())
np.testing.assert_allclose(reference, runtime, atol=1e-5)
session = session_of(same)
try:
    session.run(None, {"x": X})
except Exception as error:
    print(f"SAME_UPPER: {type(error).__name__}: {str(error).splitlines()[0]}")
    assert "Dilation not supported" in str(error)
else:
    raise SystemExit("ONNX Runtime runs dilated convolutions with SAME padding")
PYTHON
