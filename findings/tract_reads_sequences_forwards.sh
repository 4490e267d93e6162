#!/usr/bin/env bash
# tract 0.23.9 runs recurrent layers of ONNX models forwards, if their direction is "reverse".
#
# Expected: `direction="reverse"` of RNN, GRU and LSTM reads the sequence from its end, as ONNX Runtime 1.32.0 does; a
# reader that does not know it refuses the model.
# Observed: the attribute is ignored without a warning, and outputs and the last state are those of "forward". Shapes
# are right, and so is "bidirectional": a network with one layer of each direction next to each other differs from one
# with a bidirectional layer.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tract==0.23.9 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnxruntime
import tract
from onnx import TensorProto, helper, numpy_helper

print(*(f"{name} {version(name)}" for name in ("tract", "onnxruntime")))
STEPS, BATCH, FEATURES, UNITS = 6, 2, 3, 4
generator = np.random.default_rng(0)
sequence = generator.normal(size=(STEPS, BATCH, FEATURES)).astype(np.float32)


def write(operator, gates, direction):
    """Write a model with one layer, the same weights for each direction."""
    weights = np.random.default_rng(1)
    directions = 1 + (direction == "bidirectional")
    constants = [
        numpy_helper.from_array(np.float32(weights.normal(size=(1, gates * UNITS, size))).repeat(directions, 0), name)
        for name, size in (("W", FEATURES), ("R", UNITS))
    ]
    node = helper.make_node(operator, ["x", "W", "R"], ["y", "last"], hidden_size=UNITS, direction=direction)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sequence.shape)],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [STEPS, directions, BATCH, UNITS]),
            helper.make_tensor_value_info("last", TensorProto.FLOAT, [directions, BATCH, UNITS]),
        ],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "model.onnx")


def by_tract():
    model = tract.onnx().load("model.onnx").into_model().into_runnable()
    return [output.to_numpy() for output in model.run([sequence])]


def by_onnxruntime():
    return onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"]).run(None, {"x": sequence})


for operator, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
    forwards = None
    for direction in ("forward", "reverse", "bidirectional"):
        write(operator, gates, direction)
        seen, right = by_tract(), by_onnxruntime()
        forwards = forwards or right
        errors = [float(np.abs(a - b).max()) for a, b in zip(seen, right)]
        print(f"{operator}, {direction}: largest errors of outputs and of the last state {np.round(errors, 4)}")
        assert (max(errors) < 1e-4) == (direction != "reverse")
        if direction == "reverse":
            for output, of_forwards in zip(seen, forwards):
                np.testing.assert_allclose(output, of_forwards, atol=1e-4)
PYTHON
