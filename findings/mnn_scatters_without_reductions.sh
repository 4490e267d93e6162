#!/usr/bin/env bash
# MNN 3.6.1 overwrites values where an ONNX model adds to them, and leaves out those whose places are negative.
#
# Expected: ScatterND and ScatterElements with a `reduction` combine the updates with what is there, and places below
# zero count from the end, or the conversion is refused.
# Observed: the converter ignores `reduction` of ScatterND: "add", "mul", "max" and "min" all store the updates.
# ScatterElements does so with "max" and "min", and combines with "add" and "mul". It leaves out updates of negative
# places, and GatherElements and GatherND read zeros there, while Gather and ScatterND count from the end. There is no
# warning. Exporters write `index_put`, `scatter_reduce` and pooling over the nodes of a graph with these reductions.
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


x, updates = [1, 2, 3, 4], [10, -20]
for reduction, right in (
    ("none", [1, -20, 3, 10]),
    ("add", [1, -18, 3, 14]),
    ("mul", [1, -40, 3, 40]),
    ("max", [1, 2, 3, 10]),
    ("min", [1, -20, 3, 4]),
):
    for operator, places in (("ScatterElements", [3, 1]), ("ScatterND", [[3], [1]])):
        seen = by_mnn(operator, [4], x, updates, places=[1], constants=[places], reduction=reduction)
        print(f"{operator}, {reduction}: MNN {seen.tolist()}, exactly {right}")
        combines = operator == "ScatterElements" and reduction in ("add", "mul")
        assert seen.tolist() == (right if combines else [1, -20, 3, 10])

for operator, places, right, wrong in (
    ("ScatterElements", [-1, 1], [1, -20, 3, 10], [1, -20, 3, 4]),
    ("ScatterND", [[-1], [1]], [1, -20, 3, 10], None),
    ("GatherElements", [-1, -2], [4, 3], [0, 0]),
    ("GatherND", [[-1], [-2]], [4, 3], [0, 0]),
    ("Gather", [-1, -2], [4, 3], None),
):
    inputs = (x, updates) if operator.startswith("Scatter") else (x,)
    seen = by_mnn(operator, [len(right)], *inputs, places=[1], constants=[places])
    print(f"{operator} at {places}: MNN {seen.tolist()}, exactly {right}")
    assert seen.tolist() == (wrong or right)
PYTHON
