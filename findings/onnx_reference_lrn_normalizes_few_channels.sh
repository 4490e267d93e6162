#!/usr/bin/env bash
# ONNX 1.23.2: the reference evaluator normalizes only as many channels by LRN as the batch has examples.
#
# Expected: LRN divides each value by (bias + alpha / size * sum of squares of the neighbouring channels) ** beta, in
# every channel. ONNX Runtime does so, and so does the formula in numpy.
# Observed: `onnx.reference` sums the squares of the first channels alone, as many as there are examples; all further
# channels are divided by bias ** beta. With one example, five channels of ones become 0.33, 1, 1, 1, 1 instead of 0.33,
# 0.25, 0.25, 0.25, 0.33. AlexNet and GoogLeNet have LRN. A converter that is compared with this evaluator looks wrong.
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

SIZE, ALPHA, BETA, BIAS = 3, 3.0, 1.0, 1.0


def network(batch):
    shape = [batch, 5, 1, 1]
    node = helper.make_node("LRN", ["x"], ["y"], size=SIZE, alpha=ALPHA, beta=BETA, bias=BIAS)
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([node], "lrn", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def formula(x):
    squares = np.pad(x**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    return x / (BIAS + ALPHA / SIZE * (squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:])) ** BETA


print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
for batch in (1, 2, 5):
    x = np.ones((batch, 5, 1, 1), np.float32)
    model = network(batch)
    (reference,) = ReferenceEvaluator(model).run(None, {"x": x})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (runtime,) = session.run(None, {"x": x})
    print(f"{batch} examples: reference {reference[0].ravel()}, onnxruntime {runtime[0].ravel()}")
    np.testing.assert_allclose(runtime, formula(x), rtol=1e-6)
    right = np.isclose(reference, formula(x), rtol=1e-6).all(axis=(0, 2, 3))
    assert right.all() == (batch == 5), right
    assert batch == 5 or (reference[:, batch:] == 1).all()
PYTHON
