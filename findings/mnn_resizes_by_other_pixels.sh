#!/usr/bin/env bash
# MNN 3.6.1 resizes images of ONNX models by other pixels, if the interpolation is cubic or has options.
#
# Expected: Resize and GridSample compute what ONNX defines, or the conversion is refused.
# Observed: cubic upsampling with half pixels, which is the default, takes wrong pixels at the edge: a row of the
# numbers 0 to 4 begins with 0.67 instead of -0.11. `antialias`, `cubic_coeff_a`, `exclude_outside` and the
# `nearest_mode` "ceil" are ignored, and "half_pixel_symmetric" is "asymmetric". GridSample computes "cubic" as "linear",
# and does not reflect with "reflection". There is no warning; linear resizing and padding with zeros are right.
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


row = np.arange(5)[None, None, None].repeat(5, axis=2)


def resized(scale, **attributes):
    shape = [1, 1, int(5 * scale), int(5 * scale)]
    scales = np.float32([1, 1, scale, scale])
    return by_mnn("Resize", shape, row, places=[2], constants=[scales], **attributes)[0, 0, 0]


def sampled(x, **attributes):
    """Return the value at the place x of a row, where -1 and 1 are the middles of the outer pixels."""
    return by_mnn("GridSample", [1, 1, 1, 1], row, [[[[x, 0]]]], align_corners=1, **attributes).item()


def cubic(x, a=-0.75):
    """Return the weight of a pixel at the distance x."""
    x = abs(x)
    return (a + 2) * x**3 - (a + 3) * x**2 + 1 if x < 1 else a * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0


# The first pixel lies at -0.25; pixels outside repeat the first one.
first = sum(cubic(-0.25 - place) * max(place, 0) for place in range(-2, 2))
seen = resized(2, mode="cubic")
print(f"cubic, twice as large: MNN {seen[:3].round(2).tolist()}, the first one should be {first:.2f}")
np.testing.assert_allclose(resized(2, mode="linear")[:3], [0, 0.25, 0.75], atol=1e-5)
assert seen[0] > 0.5 and first < 0

# The second pixel lies at 0.5 with "asymmetric".
right = sum(cubic(0.5 - place, a=-0.5) * max(place, 0) for place in range(-1, 3))
asymmetric = {"mode": "cubic", "coordinate_transformation_mode": "asymmetric"}
plain, seen = resized(2, **asymmetric)[1], resized(2, cubic_coeff_a=-0.5, **asymmetric)[1]
print(f"cubic_coeff_a=-0.5: MNN {seen:.4f}, exactly {right:.4f}")
assert seen == plain and abs(seen - right) > 0.02
weights = {place: cubic(0.5 - place) for place in range(3)}
right = sum(place * weight for place, weight in weights.items()) / sum(weights.values())
seen = resized(2, exclude_outside=1, **asymmetric)[1]
print(f"exclude_outside: MNN {seen:.4f}, exactly {right:.4f}")
assert seen == plain and abs(seen - right) > 0.02

plain, seen = resized(0.6, mode="linear"), resized(0.6, mode="linear", antialias=1)
weights = {place: max(0, 1 - abs(1 / 3 - place) * 0.6) for place in range(3)}
right = sum(place * weight for place, weight in weights.items()) / sum(weights.values())
print(f"antialias: MNN begins with {seen[0]:.4f}, exactly {right:.4f}")
assert (seen == plain).all() and abs(seen[0] - right) > 0.05

seen = resized(2, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="ceil")
print(f"nearest_mode ceil: MNN {seen.tolist()}, exactly {[0, 1, 1, 2, 2, 3, 3, 4, 4, 4]}")
assert seen.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]

seen = resized(2, mode="linear", coordinate_transformation_mode="half_pixel_symmetric")
print(f"half_pixel_symmetric: MNN {seen[:4].tolist()}, exactly [0, 0.25, 0.75, 1.25]")
np.testing.assert_allclose(seen[:4], [0, 0.5, 1, 1.5])

plain, seen = sampled(-0.7, mode="linear"), sampled(-0.7, mode="cubic")
right = sum(cubic(0.6 - place) * max(place, 0) for place in range(-1, 3))
print(f"GridSample, cubic: MNN {seen:.4f}, exactly {right:.4f}")
np.testing.assert_allclose([plain, seen], 0.6, atol=1e-5)
assert abs(right - 0.6) > 0.01
seen = sampled(-1.5, mode="linear", padding_mode="reflection")
print(f"GridSample, reflection at -1: MNN {seen:.4f}, exactly 1")
assert sampled(-1.5, mode="linear", padding_mode="zeros") == 0 and seen == 0
PYTHON
