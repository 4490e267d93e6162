#!/usr/bin/env bash
# OnnxSlim 0.1.98 multiplies channels instead of columns, if an image has as many columns as channels.
#
# Expected: a product after a convolution is merged into its kernels only if the constant has one number a channel, and
# ones for the other axes.
# Observed: the number of values alone decides. For eight channels of 8 x 8, a constant of eight numbers, which belong to
# the columns by ONNX's rules of broadcasting, scales the channels, and so does one of 1 x 1 x 8 x 1, which belongs to the
# rows. There is no warning. If the sizes differ, the product stays, so that one network may be right for 224 x 224 and
# wrong for another size. ONNX Runtime and ONNX's reference evaluator agree on both files.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet onnxslim==0.1.98 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnxruntime
import onnxslim
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

CHANNELS = 8
rng = np.random.default_rng(0)
kernel = rng.normal(size=(CHANNELS, 3, 1, 1)).astype(np.float32)
scale = np.arange(1, CHANNELS + 1, dtype=np.float32)


def model(shape, width):
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "kernel"], ["h"]), helper.make_node("Mul", ["h", "scale"], ["y"])],
        "window",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, CHANNELS, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, CHANNELS, CHANNELS, width])],
        [numpy_helper.from_array(kernel, "kernel"), numpy_helper.from_array(scale.reshape(shape), "scale")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


def results(network, x):
    """Return what ONNX Runtime computes, after a comparison with the reference evaluator."""
    options = onnxruntime.SessionOptions()
    session = onnxruntime.InferenceSession(network.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (outputs,) = session.run(None, {"x": x})
    np.testing.assert_allclose(outputs, ReferenceEvaluator(network).run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)
    return outputs


print(*(f"{name} {version(name)}" for name in ("onnxslim", "onnx", "onnxruntime")))
for name, shape, width, right in (
    ("channels", (1, CHANNELS, 1, 1), 8, True),
    ("columns", (CHANNELS,), 8, False),
    ("rows", (1, 1, CHANNELS, 1), 9, False),
):
    network, x = model(shape, width), rng.normal(size=(1, 3, CHANNELS, width)).astype(np.float32)
    plain = np.einsum("oc,bcyx->boyx", kernel[:, :, 0, 0], x)
    expected, by_channel = plain * scale.reshape(shape), plain * scale.reshape(1, CHANNELS, 1, 1)
    optimized = results(onnxslim.slim(network), x)
    print(f"scale of {name}: error {np.abs(optimized - expected).max():.1e}, of values up to {np.abs(expected).max():.1f}")
    np.testing.assert_allclose(results(network, x), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(optimized, by_channel, rtol=1e-4, atol=1e-4)
    assert np.allclose(expected, by_channel) == right
PYTHON
