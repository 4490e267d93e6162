#!/usr/bin/env bash
# ONNX 1.23.2: its version converter changes what Upsample, Resize and Hardmax of old models compute.
#
# Expected: a model that is converted to newer operators computes the same, as the converter does for Softmax.
# Observed: opset 11 gave Resize an attribute for coordinates whose default is not what earlier versions did, and opset
# 13 gave the axis of Hardmax another meaning. The converter adds neither the attribute nor the reshaping that Softmax
# gets: linear interpolation moves by up to half a pixel, and a maximum is that of a column instead of all, without a
# warning. Resizing of opset 7 to 10 is what many older networks for detection and segmentation have. The reference
# evaluator cannot run it at all.
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
from onnx import TensorProto, helper, numpy_helper, version_converter

ROW = np.array([0, 10, 20], np.float32)


def outputs(node, x, version, target, constants=()):
    """Return what ONNX Runtime computes for a model, and for the converted one."""
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=6)
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    onnx.checker.check_model(model, full_check=True)
    newer = version_converter.convert_version(model, target)
    onnx.checker.check_model(newer, full_check=True)
    results = []
    for each in (model, newer):
        session = onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"])
        results.append(session.run(None, {"x": x})[0])
    print(f"{node.op_type} of version {version}: {results[0].ravel()}, converted to {target}: {results[1].ravel()}")
    return results


print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
image, scales = ROW.reshape(1, 1, 1, 3), np.array([1, 1, 1, 2], np.float32)
for version, node in (
    (9, helper.make_node("Upsample", ["x", "s"], ["y"], mode="linear")),
    (10, helper.make_node("Resize", ["x", "s"], ["y"], mode="linear")),
):
    old, new = outputs(node, image, version, 13, [("s", scales)])
    places = np.arange(6)
    np.testing.assert_allclose(old.ravel(), np.interp(places / 2, np.arange(3), ROW), atol=1e-5)
    np.testing.assert_allclose(new.ravel(), np.interp((places + 0.5) / 2 - 0.5, np.arange(3), ROW), atol=1e-5)
rows = np.array([[[1, 2], [4, 3]]], np.float32)
old, new = outputs(helper.make_node("Hardmax", ["x"], ["y"], axis=1), rows, 11, 13)
assert old.ravel().tolist() == [0, 0, 1, 0]  # the largest of all four
assert new.ravel().tolist() == [0, 0, 1, 1]  # the largest of each column
old, new = outputs(helper.make_node("Softmax", ["x"], ["y"], axis=1), rows, 11, 13)
np.testing.assert_allclose(old, new, rtol=1e-5)
PYTHON
