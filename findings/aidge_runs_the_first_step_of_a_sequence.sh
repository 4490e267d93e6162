#!/usr/bin/env bash
# Aidge 0.10.1 runs an LSTM of an ONNX model for the first step of a sequence alone.
#
# Expected: an LSTM that is imported, compiled and run by a scheduler, as each other operator is, computes all steps, or
# is refused, as GRU and an LSTM without initial states are.
# Observed: of 5 steps, the outputs of the first are right and those of the others zero, and the last state is that of
# the first step. There is no warning. After `aidge_core.expand_metaops(graph, True)`, which replaces the LSTM by its
# parts before the graph is compiled, all steps are right, up to rounding.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet aidge-core==0.10.1 aidge-backend-cpu==0.10.1 aidge-onnx==0.10.1 \
    onnx==1.23.2 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import aidge_backend_cpu  # noqa: F401 (registers the backend)
import aidge_core
import aidge_onnx
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

print("Aidge", version("aidge-core"))
aidge_core.Log.set_console_level(aidge_core.Level.Error)
STEPS, FEATURES, UNITS = 5, 4, 3
generator = np.random.default_rng(0)
shapes = {
    "w": (1, 4 * UNITS, FEATURES),
    "r": (1, 4 * UNITS, UNITS),
    "b": (1, 8 * UNITS),
    "h": (1, 1, UNITS),
    "c": (1, 1, UNITS),
}
weights = {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
x = generator.normal(size=(STEPS, 1, FEATURES)).astype(np.float32)


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


# The gates of ONNX are input, output, forget and cell.
h, c, exact = weights["h"][0], weights["c"][0], []
for step in x:
    bias = weights["b"][0, : 4 * UNITS] + weights["b"][0, 4 * UNITS :]
    i, o, f, g = np.split(step @ weights["w"][0].T + h @ weights["r"][0].T + bias, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    exact.append(h[0])
exact = np.array(exact)

node = helper.make_node("LSTM", ["x", "w", "r", "b", "", "h", "c"], ["y", "last", "cell"], hidden_size=UNITS)
outputs = {"y": (STEPS, 1, 1, UNITS), "last": (1, 1, UNITS), "cell": (1, 1, UNITS)}
graph = helper.make_graph(
    [node],
    "graph",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
    [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
    [numpy_helper.from_array(value, name) for name, value in weights.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.checker.check_model(model, full_check=True)
onnx.save(model, "model.onnx")


def by_aidge(expand):
    """Return the outputs of all steps and the last state."""
    graph = aidge_onnx.load_onnx("model.onnx")
    if expand:
        aidge_core.expand_metaops(graph, True)
    graph.compile("cpu", aidge_core.dtype.float32, dims=[list(x.shape)])
    aidge_core.SequentialScheduler(graph).forward(True, [aidge_core.Tensor(x)])
    results = [np.array(node.get_operator().get_output(place)) for node, place in graph.get_ordered_outputs()]
    return results[0].reshape(STEPS, UNITS), results[1].reshape(UNITS)


for expand in (False, True):
    steps, last = by_aidge(expand)
    for step, (seen, right) in enumerate(zip(steps, exact)):
        print(f"expanded {expand}, step {step}: Aidge {seen.round(3).tolist()}, exactly {right.round(3).tolist()}")
    print("last state", last.round(3).tolist())
    np.testing.assert_allclose(steps[0], exact[0], atol=1e-5)
    if expand:
        np.testing.assert_allclose(steps, exact, atol=1e-5)
        np.testing.assert_allclose(last, exact[-1], atol=1e-5)
    else:
        assert (steps[1:] == 0).all() and np.abs(exact[1:]).max(1).min() > 0.1
        np.testing.assert_allclose(last, exact[0], atol=1e-5)
PYTHON
