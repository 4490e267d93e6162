#!/usr/bin/env bash
# MNN 3.6.1 computes Round, Mod and Shrink of ONNX models by other rules.
#
# Expected: Round takes halves to the even number; Mod with `fmod=1` has the sign of the first number; Shrink moves
# values on both sides towards zero.
# Observed: Round takes halves away from zero, so that simulated quantization is off by one step at ties; Mod with
# `fmod=1` has the sign of the second number, which ONNX defines for `fmod=0`; Shrink makes large
# negative values 0 and keeps the small ones. There is no warning.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet MNN==3.6.1 onnx==1.23.2 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import subprocess
import sys
from importlib.metadata import version

import MNN
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

print("MNN", version("MNN"))
# The function behind the command `mnnconvert`, which installs other packages when it runs.
CONVERT = "import _tools; _tools.mnnconvert('mnnconvert -f ONNX --modelFile model.onnx --MNNModel model.mnn'.split())"


def by_mnn(operator, shape, *inputs, places=(), constants=(), **attributes):
    """Return what MNN computes for one operator, in the given shape; constants are inputs at the given places."""
    values = {f"input_{place}": np.float32(value) for place, value in enumerate(inputs)}
    initializers = [numpy_helper.from_array(np.array(value), f"constant_{i}") for i, value in enumerate(constants)]
    names = list(values)
    for place, constant in zip(places, initializers):
        names[place:place] = [""] * (place - len(names)) + [constant.name]
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], **attributes)],
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape) for name, value in values.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "model.onnx")
    subprocess.run([sys.executable, "-c", CONVERT], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    module = MNN.nn.load_module_from_file("model.mnn", list(values), ["y"])
    output = module.forward([MNN.expr.const(x, list(x.shape), MNN.expr.NCHW, MNN.expr.float) for x in values.values()])
    return np.array(MNN.expr.convert(output[0], MNN.expr.NCHW).read()).reshape(shape)


halves, first, second = [0.5, 1.5, 2.5, -0.5, -2.5], [-4.25, 7, 4.25], [2, -3.5, -2]
for operator, inputs, attributes, right, wrong in (
    ("Round", [halves], {}, np.round(halves), [1, 2, 3, -1, -3]),
    ("Mod", [first, second], {"fmod": 1}, np.fmod(first, second), np.remainder(first, second)),
    ("Shrink", [[-2, -1, 0, 1, 2]], {"lambd": 1.5, "bias": 0.5}, [-1.5, 0, 0, 0, 1.5], [0, -0.5, 0, 0, 1.5]),
):
    seen = by_mnn(operator, [len(right)], *inputs, **attributes)
    print(f"{operator} {attributes} of {inputs}: MNN {seen.tolist()}, exactly {np.array(right).tolist()}")
    np.testing.assert_allclose(seen, wrong, atol=1e-5)
    assert (seen != right).any()
PYTHON
