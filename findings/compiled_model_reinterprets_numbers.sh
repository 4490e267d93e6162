#!/usr/bin/env bash
# LiteRT 2.3.0: the buffers of CompiledModel take numbers of another type, and reinterpret their bits.
#
# Expected: writing float32 numbers to an int32 input, or reading a float32 output as int32, converts them or is an error,
# as in LiteRT's Interpreter; every type that a network may have can be read.
# Observed: `TensorBuffer.write` and `read` only compare sizes: the number 1.0 becomes 1065353216, without an error. The type
# int64, which tf.argmax returns by default, can be neither written nor read.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 numpy==2.4.6 ai-edge-litert==2.3.0
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3
"$directory/venv/bin/python" - 2>errors.log <<'PYTHON'
from importlib.metadata import version

import numpy as np
import tensorflow as tf
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.interpreter import Interpreter

BITS_OF_ONE = 1065353216  # of 1.0 in float32

module = tf.Module()
signature = tf.function(
    lambda x: {"doubled": tf.cast(2 * x, tf.float32), "largest": tf.argmax(x)},
    input_signature=[tf.TensorSpec([3], tf.int32, name="x")],
).get_concrete_function()
tf.saved_model.save(module, "saved", signatures={"s": signature})
content = tf.lite.TFLiteConverter.from_saved_model("saved").convert()
model = CompiledModel.from_buffer(content)
buffer = model.create_input_buffer_by_name("s", "x")
outputs = {name: model.create_output_buffer_by_name("s", name) for name in ("doubled", "largest")}
print("ai-edge-litert", version("ai-edge-litert"))


def doubled(x, kind):
    buffer.write(x)
    model.run_by_name("s", {"x": buffer}, outputs)
    return outputs["doubled"].read(3, kind).tolist()


whole, fractions = np.array([1, 2, 3], np.int32), np.array([1, 1, 1], np.float32)
print("int32 written, float32 read:", doubled(whole, np.float32))
assert doubled(whole, np.float32) == [2, 4, 6]
print("float32 written to the int32 input:", doubled(fractions, np.float32))
assert doubled(fractions, np.float32) == [float(np.float32(2 * BITS_OF_ONE))] * 3
print("float32 output read as int32:", doubled(np.array([1, 1, 1], np.int32), np.int32))
assert doubled(np.array([1, 1, 1], np.int32), np.int32) == np.full(3, 2, np.float32).view(np.int32).tolist()
try:
    outputs["largest"].read(1, np.int64)
except ValueError as error:
    print("int64 output:", error)
else:
    raise SystemExit("int64 outputs can be read")
runner = Interpreter(model_content=content).get_signature_runner("s")
assert runner(x=whole)["largest"] == 2
try:
    runner(x=fractions)
except ValueError as error:
    print("Interpreter:", str(error).splitlines()[0])
else:
    raise SystemExit("the interpreter takes floats for integers")
PYTHON
