#!/usr/bin/env bash
# onnxscript 0.7.2: its optimizer merges Clip and Relu, or two Clips, to one Clip that computes something else.
#
# Expected: optimization of a graph changes results by rounding alone.
# Observed: if the ranges have no number in common, the result is a Clip whose minimum is above its maximum, for which ONNX
# gives the maximum precedence: a Relu after Clip from -2 to -1 gives -1 instead of 0, and Clip from 0.75 to 2 after one from
# -1 to 0.5 gives 0.5 instead of 0.75. ONNX Runtime and ONNX's reference evaluator agree on that. PyTorch's exporter with
# `dynamo=True` runs this optimizer, unless `optimize=False`: torch.relu(torch.clamp(x, -2, -1)) is negative in the file.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet onnxscript==0.7.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnxruntime
import onnxscript.optimizer
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

x = np.linspace(-3, 3, 7, dtype=np.float32)


def clip(minimum, maximum):
    """Return the operator, and its bounds by name."""
    bounds = {f"from{minimum}": minimum, f"to{maximum}": maximum}
    return "Clip", bounds


def chain(*steps):
    nodes, constants, name = [], {}, "x"
    for number, (operator, bounds) in enumerate(steps):
        constants.update(bounds)
        nodes.append(helper.make_node(operator, [name, *bounds], [f"h{number}"]))
        name = f"h{number}"
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape)],
        [numpy_helper.from_array(np.array(value, np.float32), key) for key, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def results(model):
    """Return what ONNX Runtime computes, after a comparison with the reference evaluator."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (outputs,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(outputs, ReferenceEvaluator(model).run(None, {"x": x})[0])
    return outputs


print(*(f"{name} {version(name)}" for name in ("onnxscript", "onnx", "onnxruntime")))
for name, model, expected, right in (
    ("Relu after Clip to -2 and -1", chain(clip(-2, -1), ("Relu", {})), np.zeros(7), False),
    ("Clip to 0.75 and 2 after Clip to -1 and 0.5", chain(clip(-1, 0.5), clip(0.75, 2)), np.full(7, 0.75), False),
    ("Relu after Clip to -2 and 1", chain(clip(-2, 1), ("Relu", {})), x.clip(0, 1), True),
):
    optimized = results(onnxscript.optimizer.optimize(model))
    print(f"{name}: {results(model).tolist()}, optimized {optimized.tolist()}")
    np.testing.assert_array_equal(results(model), expected)
    assert np.array_equal(optimized, expected) == right
PYTHON
