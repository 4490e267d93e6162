#!/usr/bin/env bash
# Aidge 0.10.1 pads layers of ONNX models with `auto_pad` by the kernel alone, and pools on the wrong side.
#
# Expected: SAME_UPPER and SAME_LOWER pad so that the result has the size of the input divided by the strides, rounded
# up, as ONNX says; a pixel of padding that has no partner is at the end with SAME_UPPER, and first with SAME_LOWER.
# Observed: the padding is the kernel minus the stride, whatever the size: with a kernel of 3 and strides of 2, images
# of 7 pixels become 3 instead of 4, and the last row and column are lost. With an even size, the shape is right, and
# so are convolutions; pools take SAME_UPPER for SAME_LOWER, and the other way round, so that their windows lie a pixel
# off. There is no warning. Networks that were converted from Keras and TensorFlow have such layers.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet aidge-core==0.10.1 aidge-backend-cpu==0.10.1 aidge-onnx==0.10.1 \
    onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import aidge_backend_cpu  # noqa: F401 (registers the backend)
import aidge_core
import aidge_onnx
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

print("Aidge", version("aidge-core"), "ONNX Runtime", onnxruntime.__version__)
aidge_core.Log.set_console_level(aidge_core.Level.Error)
KERNEL = 3


def computed(operator, image, stride, padding):
    """Return what Aidge and ONNX Runtime compute for an image."""
    size = -(-image.shape[2] // stride)
    weights = [numpy_helper.from_array(np.ones((1, 1, KERNEL, KERNEL), np.float32), "w")] if operator == "Conv" else []
    graph = helper.make_graph(
        [
            helper.make_node(
                operator,
                ["x", *(weight.name for weight in weights)],
                ["y"],
                kernel_shape=[KERNEL] * 2,
                strides=[stride] * 2,
                auto_pad=padding,
            )
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, image.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, size, size])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "model.onnx")
    graph = aidge_onnx.load_onnx("model.onnx")
    graph.compile("cpu", aidge_core.dtype.float32, dims=[list(image.shape)])
    aidge_core.SequentialScheduler(graph).forward(True, [aidge_core.Tensor(image)])
    ((node, place),) = graph.get_ordered_outputs()
    (exact,) = onnxruntime.InferenceSession("model.onnx").run(None, {"x": image})
    return np.array(node.get_operator().get_output(place)), exact


OTHER = {"SAME_UPPER": "SAME_LOWER", "SAME_LOWER": "SAME_UPPER"}
for padding in OTHER:
    for size in (7, 6):
        image = np.arange(1, size**2 + 1, dtype=np.float32).reshape(1, 1, size, size)
        for operator in ("Conv", "MaxPool", "AveragePool"):
            seen, exact = computed(operator, image, 2, padding)
            print(f"{padding}, {operator}, {size} pixels: shape {seen.shape[2:]}, exactly {exact.shape[2:]};", end=" ")
            print(f"first row {seen[0, 0, 0].tolist()}, exactly {exact[0, 0, 0].tolist()}")
            assert exact.shape[2] == -(-size // 2)
            if size == 7:
                assert seen.shape[2] == 3
            elif operator == "Conv":
                np.testing.assert_allclose(seen, exact)
            else:
                np.testing.assert_allclose(seen, computed(operator, image, 2, OTHER[padding])[1])
                assert np.abs(seen - exact).max() > 1
PYTHON
