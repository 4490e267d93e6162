#!/usr/bin/env bash
# PyTorch 2.13.0 casts infinity to 448 in one of its float8 types, and overflows to infinity or NaN in the others.
#
# Expected: infinity, or a number above the range, is cast by one rule for all: to the largest number, or to infinity,
# or NaN where there is none. The OCP specification of 8-bit floats has both rules, "saturating" and "non-saturating",
# for each type.
# Observed: float8_e4m3fn saturates, and float8_e5m2, float8_e4m3fnuz and float8_e5m2fnuz do not. So activations that
# have become infinite pass for ordinary ones in float8_e4m3fn, the type for weights and activations, while a check for
# infinity and NaN sees those of gradients in float8_e5m2. ml_dtypes 0.6.0, with which NumPy, JAX and TensorFlow cast,
# gives NaN for float8_e4m3fn: two libraries read the same weights from the same file and store others. ONNX 1.23.2
# saturates both types by default, and neither with `saturate=0`.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet torch==2.13.0 ml_dtypes==0.6.0 onnx==1.23.2 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
from importlib.metadata import version

import ml_dtypes
import numpy as np
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

print(*(f"{name} {version(name)}" for name in ("torch", "ml_dtypes", "onnx")))
numbers = np.array([440, 1e6, np.inf, -np.inf, np.nan], np.float32)


def by_onnx(numbers, name, saturate):
    to = getattr(TensorProto, name.replace("float8_", "FLOAT8").upper())
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["x"], ["h"], to=to, saturate=saturate),
            helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT),
        ],
        "cast",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, numbers.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, numbers.shape)],
    )
    return ReferenceEvaluator(helper.make_model(graph)).run(None, {"x": numbers})[0]


for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"):
    by_torch = torch.tensor(numbers).to(getattr(torch, name)).float().numpy()
    with np.errstate(all="ignore"):
        by_ml_dtypes = numbers.astype(getattr(ml_dtypes, name)).astype(np.float32)
    print(f"{name} of {numbers.tolist()}:")
    print(f"  PyTorch {by_torch.tolist()}, ml_dtypes {by_ml_dtypes.tolist()}")
    saturated, plain = (by_onnx(numbers, name, saturate) for saturate in (1, 0))
    print(f"  ONNX {saturated.tolist()}, with saturate=0 {plain.tolist()}")
    largest = float(torch.finfo(getattr(torch, name)).max)
    assert np.isnan(by_torch[4])
    if name == "float8_e4m3fn":
        assert by_torch[1:4].tolist() == [448, 448, -448] and np.isnan(by_ml_dtypes[1:4]).all()
    else:
        assert not np.isfinite(by_torch[1:4]).any()
        np.testing.assert_array_equal(by_torch[1:4], by_ml_dtypes[1:4])
    assert saturated[1:4].tolist() == [largest, largest, -largest]
    assert not np.isfinite(plain[1:4]).any()
PYTHON
