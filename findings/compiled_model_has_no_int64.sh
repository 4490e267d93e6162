#!/usr/bin/env bash
# LiteRT 2.3.0: CompiledModel runs networks with int64 outputs, which cannot be read.
#
# Expected: every type that a network may have can be read, as in LiteRT's Interpreter.
# Observed: `TensorBuffer.read` refuses int64, the type of tf.argmax by default, although the network runs and its other
# outputs are right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 numpy==2.4.6 ai-edge-litert==2.3.0
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3
"$directory/venv/bin/python" - 2>errors.log <<'PYTHON' || { cat errors.log >&2; exit 1; }
from importlib.metadata import version

import numpy as np
import tensorflow as tf
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.interpreter import Interpreter

module = tf.Module()
signature = tf.function(
    lambda x: {"doubled": 2 * x, "largest": tf.argmax(x)},
    input_signature=[tf.TensorSpec([3], tf.float32, name="x")],
).get_concrete_function()
tf.saved_model.save(module, "saved", signatures={"s": signature})
content = tf.lite.TFLiteConverter.from_saved_model("saved").convert()
model = CompiledModel.from_buffer(content)
buffer = model.create_input_buffer_by_name("s", "x")
outputs = {name: model.create_output_buffer_by_name("s", name) for name in ("doubled", "largest")}
print("ai-edge-litert", version("ai-edge-litert"))

x = np.array([1, 2, 3], np.float32)
buffer.write(x)
model.run_by_name("s", {"x": buffer}, outputs)
assert outputs["doubled"].read(3, np.float32).tolist() == [2, 4, 6]
assert Interpreter(model_content=content).get_signature_runner("s")(x=x)["largest"] == 2
try:
    outputs["largest"].read(1, np.int64)
except ValueError as error:
    print("int64 output:", error)
else:
    raise SystemExit("int64 outputs can be read")
PYTHON
