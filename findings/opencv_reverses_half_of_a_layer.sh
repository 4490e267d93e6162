#!/usr/bin/env bash
# OpenCV 5.0.0 runs a GRU of an ONNX model forwards if its direction is "reverse", and returns the wrong state of an
# LSTM.
#
# Expected: `direction="reverse"` reads the sequence from its end, so that the last state is the one at the first place,
# as in ONNX Runtime 1.32.0.
# Observed: outputs and state of a GRU are those of "forward", as if there were no attribute. The outputs of an LSTM are
# right, but its state, `Y_h`, is the one that it starts with, behind the last value of the sequence: it has seen a
# single value, and a classifier that uses it gets nearly nothing of the sequence. There is no warning; "forward" and
# "bidirectional" are right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet opencv-python-headless==5.0.0.93 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import cv2
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

print("opencv", cv2.__version__, "onnxruntime", onnxruntime.__version__)
STEPS, BATCH, FEATURES, UNITS = 6, 2, 3, 4
sequence = np.random.default_rng(0).normal(size=(STEPS, BATCH, FEATURES)).astype(np.float32)


def model(operator, gates, direction):
    """Return a model with one layer, the same weights for each direction."""
    weights = np.random.default_rng(1)
    directions = 1 + (direction == "bidirectional")
    constants = [
        numpy_helper.from_array(np.float32(weights.normal(size=(1, *shape))).repeat(directions, 0), name)
        for name, shape in (("W", (gates * UNITS, FEATURES)), ("R", (gates * UNITS, UNITS)), ("B", (2 * gates * UNITS,)))
    ]
    node = helper.make_node(operator, ["x", "W", "R", "B"], ["y", "last"], hidden_size=UNITS, direction=direction)
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
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made.SerializeToString()


def by_opencv(made):
    network = cv2.dnn.readNetFromONNX(np.frombuffer(made, np.uint8))
    network.setInput(sequence, "x")
    return network.forward(["y", "last"])


def by_onnxruntime(made):
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    return session.run(["y", "last"], {"x": sequence})


for operator, gates in (("GRU", 3), ("LSTM", 4)):
    for direction in ("forward", "reverse", "bidirectional"):
        made = model(operator, gates, direction)
        seen, right = by_opencv(made), by_onnxruntime(made)
        errors = [float(np.abs(a - b).max()) for a, b in zip(seen, right)]
        print(f"{operator}, {direction}: largest errors of outputs and of the last state {np.round(errors, 4)}")
        if direction != "reverse":
            assert max(errors) < 1e-4
        elif operator == "GRU":
            for output, of_forwards in zip(seen, by_onnxruntime(model(operator, gates, "forward"))):
                np.testing.assert_allclose(output, of_forwards, atol=1e-4)
            assert min(errors) > 0.1
        else:
            assert errors[0] < 1e-4 < 0.1 < errors[1]
            np.testing.assert_allclose(seen[1], right[0][-1], atol=1e-4)
PYTHON
