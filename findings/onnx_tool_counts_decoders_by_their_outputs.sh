#!/usr/bin/env bash
# onnx-tool 1.0.1 counts the operations of a transposed convolution for each pixel of its output, and for other
# channels.
#
# Expected: each pixel of the input is multiplied by the kernels of all output channels: pixels of the input times input
# channels times output channels times the size of the kernel, which is also the number of a convolution backwards.
# Observed: it counts pixels of the output times output channels squared times the size of the kernel. A layer that
# doubles an image from 16 to 8 channels is counted twice, and one from 8 to 16 channels eight times. Decoders,
# generators and U-Nets seem to miss a budget that they keep, and a search by this number avoids upsampling.
# Convolutions are right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet onnx-tool==1.0.1 onnx==1.23.2 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx_tool
from onnx import TensorProto, helper, numpy_helper

print("onnx-tool", version("onnx-tool"))
SIDE = 10


def counted(operator, channels, filters, size, stride):
    """Return the multiply-adds that onnx-tool counts for a layer, and the side of its output."""
    transposed = operator == "ConvTranspose"
    kernel = np.ones([channels, filters, size, size] if transposed else [filters, channels, size, size], np.float32)
    side = (SIDE - 1) * stride + size if transposed else (SIDE - size) // stride + 1
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "kernel"], ["y"], strides=[stride, stride], kernel_shape=[size, size])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, SIDE, SIDE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, filters, side, side])],
        [numpy_helper.from_array(kernel, "kernel")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    tool = onnx_tool.Model(model).graph
    tool.shape_infer(None)
    tool.profile()
    return tool.macs[0], side


for channels, filters, size, stride in ((8, 16, 2, 2), (16, 8, 2, 2), (8, 16, 3, 1)):
    kernel = channels * filters * size * size
    seen, side = counted("Conv", channels, filters, size, stride)
    assert seen == side * side * kernel
    seen, side = counted("ConvTranspose", channels, filters, size, stride)
    exact = SIDE * SIDE * kernel
    print(f"{channels} to {filters} channels, kernel {size}, stride {stride}: {seen:,.0f} instead of {exact:,}")
    assert seen == side * side * filters * filters * size * size != exact
PYTHON
