#!/usr/bin/env bash
# OpenCV 5.0.0 pads convolutions and pools of ONNX models with `auto_pad` on the wrong side.
#
# Expected: with SAME_UPPER, an odd number of zeros has the larger half behind the image, and with SAME_LOWER in front
# of it (ONNX operators, Conv). A layer with a kernel of 3 and a step of 2 has one zero behind an image of even size, as
# in TensorFlow and ONNX Runtime 1.32.0.
# Observed: half of the kernel is padded in front of the image, and the rest behind it, for both words, without a
# warning. That is one zero in front for a kernel of 3, as for SAME_LOWER, and none for a kernel of 2, as for SAME_UPPER.
# Outputs have the right shape, and belong to places that are shifted by a pixel. Even padding, and padding that is
# written as `pads`, is right.
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
CHANNELS, SIZE = 2, 8
generator = np.random.default_rng(0)
image = generator.normal(size=(1, CHANNELS, SIZE, SIZE)).astype(np.float32)


def model(operator, kernel, stride, **padding):
    weights = generator.normal(size=(CHANNELS, CHANNELS, kernel, kernel)).astype(np.float32)
    constants = [numpy_helper.from_array(weights, "w")] * (operator == "Conv")
    node = helper.make_node(
        operator, ["x", *(constant.name for constant in constants)], ["y"],
        kernel_shape=[kernel, kernel], strides=[stride, stride], **padding,
    )  # fmt: skip
    outputs = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, CHANNELS, SIZE // stride, SIZE // stride])
    inputs = helper.make_tensor_value_info("x", TensorProto.FLOAT, image.shape)
    made = helper.make_model(
        helper.make_graph([node], "g", [inputs], [outputs], constants),
        opset_imports=[helper.make_opsetid("", 18)], ir_version=8,
    )  # fmt: skip
    onnx.checker.check_model(made, full_check=True)
    return made.SerializeToString()


def error(made):
    """Return the largest difference between OpenCV and ONNX Runtime."""
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    network = cv2.dnn.readNetFromONNX(np.frombuffer(made, np.uint8))
    network.setInput(image, "x")
    seen, right = network.forward("y"), session.run(None, {"x": image})[0]
    assert seen.shape == right.shape
    return float(np.abs(seen - right).max())


for operator in ("Conv", "MaxPool", "AveragePool"):
    for kernel, stride, total in ((3, 1, 2), (3, 2, 1), (2, 1, 1), (5, 2, 3)):
        upper, lower = (error(model(operator, kernel, stride, auto_pad=f"SAME_{side}")) for side in ("UPPER", "LOWER"))
        front, behind = total // 2, total - total // 2
        written = error(model(operator, kernel, stride, pads=[front, front, behind, behind]))
        print(f"{operator}, kernel {kernel}, step {stride}: largest error {upper:.3f} of SAME_UPPER, {lower:.3f} of "
              f"SAME_LOWER, {written:.3f} of the same padding as numbers")
        half = (kernel - 1) // 2
        assert (upper < 1e-3) == (half == front) and (lower < 1e-3) == (half == behind) and written < 1e-3
PYTHON
