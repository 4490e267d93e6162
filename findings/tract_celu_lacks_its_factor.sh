#!/usr/bin/env bash
# tract 0.23.9 leaves out a factor of Celu, so that negative values are wrong for each `alpha` but 1.
#
# Expected: Celu is max(0, x) + min(0, alpha * (exp(x / alpha) - 1)), as ONNX says and PyTorch's `nn.CELU` computes: its
# slope is 1 on both sides of 0, and its lower limit is -alpha.
# Observed: tract computes exp(x / alpha) - 1 for negative values, without a warning. With alpha = 2, they are half as
# large, and the slope has a bend at 0; with alpha = 0.5, they are twice as large. Elu and Selu are right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tract==0.23.9 onnx==1.23.2 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import tract
from onnx import TensorProto, helper

print("tract", version("tract"))
values = np.linspace(-3, 3, 13, dtype=np.float32)


def by_tract(operator, alpha):
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, values.shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], alpha=alpha)], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "model.onnx")
    return tract.onnx().load("model.onnx").into_model().into_runnable().run([values])[0].to_numpy()


for alpha in (0.5, 1.0, 2.0):
    celu = np.maximum(0, values) + np.minimum(0, alpha * np.expm1(values / alpha))
    elu = np.where(values > 0, values, alpha * np.expm1(values))
    seen = by_tract("Celu", alpha)
    print(f"alpha {alpha}: Celu of -3 is {seen[0]:.4f} instead of {celu[0]:.4f}")
    np.testing.assert_allclose(seen[values < 0] * alpha, celu[values < 0], atol=1e-5)
    np.testing.assert_allclose(seen[values >= 0], celu[values >= 0], atol=1e-5)
    assert np.allclose(seen, celu, atol=1e-5) == (alpha == 1)
    np.testing.assert_allclose(by_tract("Elu", alpha), elu, atol=1e-5)
PYTHON
