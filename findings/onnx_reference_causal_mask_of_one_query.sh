#!/usr/bin/env bash
# ONNX 1.23.2: the reference evaluator applies the causal mask of the first query to all, if another mask is equal for all.
#
# Expected: `attn_mask` is broadcast to [batch, heads, queries, keys] before `is_causal` excludes later keys, so that a mask
# [batch, 1, 1, keys] gives the same outputs as the mask that repeats it for each query.
# Observed: the causal mask is made for as many queries as `attn_mask` has, one, and then broadcast: every query attends to
# the first key alone. ONNX Runtime refuses such masks.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet onnx==1.23.2 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

QUERIES = 4


def outputs(mask):
    node = helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"], is_causal=1)
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "qkv"]
    masks = helper.make_tensor_value_info("mask", TensorProto.BOOL, None)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "attention", [*tensors, masks], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    rng = np.random.default_rng(0)
    feed = {name: rng.normal(size=(1, 2, QUERIES, 3)).astype(np.float32) for name in "qkv"}
    return ReferenceEvaluator(model).run(None, {**feed, "mask": mask})[0]


print("onnx", onnx.__version__)
one = np.ones((1, 1, 1, QUERIES), bool)
difference = np.abs(outputs(one) - outputs(np.repeat(one, QUERIES, 2))).max()
print("difference between a mask for all queries and the same one for each:", difference)
sys.exit(0 if difference > 0.1 else 1)
PYTHON
