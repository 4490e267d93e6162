#!/usr/bin/env bash
# tinygrad 0.14.0 pairs the heads of queries with the wrong heads of keys and values, in Attention of ONNX models.
#
# Expected: with fewer heads of keys than of queries (grouped-query attention), neighbouring heads of queries share a
# head of keys: with 4 and 2, the pairs are 0-0, 1-0, 2-1 and 3-1, as in ONNX's reference evaluator 1.23.2, ONNX Runtime
# 1.32.0, and the weights of Llama, Mistral, Gemma and Qwen.
# Observed: heads of keys are repeated as a whole: 0-0, 1-1, 2-0 and 3-1. The first and the last head are right, and
# the others attend to keys that they were not trained with, without a warning. With one head of keys, or as many as of
# queries, results are right. If heads of queries are put in the order 0, 2, 1, 3 and those of the output back again,
# they are right as well.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tinygrad==0.14.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cd "$directory"
DEV=PYTHON "$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from tinygrad.nn.onnx import OnnxRunner

print(*(f"{name} {version(name)}" for name in ("tinygrad", "onnx", "onnxruntime")))
QUERY_HEADS, LENGTH, SIZE = 4, 3, 2
generator = np.random.default_rng(0)


def outputs(inputs):
    """Return the results of tinygrad, ONNX Runtime, ONNX's reference, and NumPy."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in inputs.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, inputs["q"].shape)
    graph = helper.make_graph([helper.make_node("Attention", list(inputs), ["y"])], "g", ends, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "model.onnx")
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    keys, values = (inputs[name].repeat(QUERY_HEADS // inputs[name].shape[1], axis=1) for name in "kv")
    weights = np.exp(inputs["q"] @ keys.swapaxes(-1, -2) / np.sqrt(SIZE))
    return (
        OnnxRunner("model.onnx")(inputs)["y"].numpy(),
        session.run(None, inputs)[0],
        ReferenceEvaluator(model).run(None, inputs)[0],
        weights / weights.sum(axis=-1, keepdims=True) @ values,
    )


for key_heads in (1, 2, 4):
    inputs = {
        name: generator.normal(size=(1, heads, LENGTH, SIZE)).astype(np.float32)
        for name, heads in (("q", QUERY_HEADS), ("k", key_heads), ("v", key_heads))
    }
    seen, *rights = outputs(inputs)
    errors = np.abs(seen - rights[0]).max(axis=(0, 2, 3))
    print(f"{key_heads} heads of keys: largest error of each head of queries {np.round(errors, 4)}")
    for right in rights:
        np.testing.assert_allclose(right, rights[0], atol=1e-5)
    assert ((errors > 1e-3) == (np.array([False, True, True, False]) & (key_heads == 2))).all()

    moved = np.arange(QUERY_HEADS).reshape(key_heads, -1).T.ravel()
    seen, *_ = outputs(inputs | {"q": inputs["q"][:, moved]})
    np.testing.assert_allclose(seen[:, np.argsort(moved)], rights[0], atol=1e-5)
PYTHON
