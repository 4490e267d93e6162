#!/usr/bin/env bash
# OpenVINO 2026.4.1 ignores `antialias`, `keep_aspect_ratio_policy` and `exclude_outside` of Resize in ONNX models.
#
# Expected: with `antialias`, a smaller image has averages of all pixels; with a policy for the aspect ratio, `sizes`
# are limits of a size with that ratio; with `exclude_outside`, weights beyond the edge are zero (ONNX operators,
# Resize, opset 19).
# Observed: none of them has an effect, and there is no warning: without the filter, a smaller image is made of the few
# pixels next to each position, and with a policy, it is stretched to another shape. Preprocessing that was exported
# with the network, as from PyTorch's `interpolate(..., antialias=True)`, gives other pixels, and accuracy falls a bit.
# ONNX Runtime 1.32.0 and ONNX's reference evaluator agree with each other on all three.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet openvino==2026.4.1 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

print(*(f"{name} {version(name)}" for name in ("openvino", "onnx", "onnxruntime")))
rows, columns = 8, 12
stripes = np.tile(np.float32([0, 0, 0, 9]), columns // 4) + np.arange(rows, dtype=np.float32)[:, None] % 3
image = stripes[None, None]


def resized(sizes, **attributes):
    """Return what OpenVINO and ONNX Runtime compute, the latter after a comparison with the reference evaluator."""
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], axes=[2, 3], **attributes)],
        "resize",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, image.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)],
        [numpy_helper.from_array(np.array(sizes), "sizes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    right = session.run(None, {"x": image})[0]
    np.testing.assert_allclose(ReferenceEvaluator(model).run(None, {"x": image})[0], right, atol=1e-4)
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(content), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return np.asarray(compiled([image])[0]), right


for mode, sizes, attributes in (
    ("linear", (4, 3), {"antialias": 1}),
    ("cubic", (4, 3), {"antialias": 1}),
    ("cubic", (16, 24), {"exclude_outside": 1}),
    ("nearest", (4, 4), {"keep_aspect_ratio_policy": "not_larger"}),
    ("nearest", (4, 4), {"keep_aspect_ratio_policy": "not_smaller"}),
):
    plain, right = resized(sizes, mode=mode)
    np.testing.assert_allclose(plain, right, atol=1e-4)
    ignored, right = resized(sizes, mode=mode, **attributes)
    difference = np.abs(ignored - right).max() if ignored.shape == right.shape else "none, as shapes differ"
    print(
        f"{mode} to {sizes} with {attributes}: {ignored.shape[2:]} instead of {right.shape[2:]}, "
        f"largest difference {difference}"
    )
    np.testing.assert_array_equal(ignored, plain)
    assert ignored.shape != right.shape or difference > 0.1
PYTHON
