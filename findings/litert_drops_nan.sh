#!/usr/bin/env bash
# LiteRT in TensorFlow 2.21.0 turns NaN into ordinary numbers: exp(NaN) is 0 with the default delegate.
#
# Expected: NaN in, NaN out, as in TensorFlow, so that a check of the outputs detects a broken input.
# Observed: EXP of NaN is 0 with XNNPACK, the default delegate, and NaN with LiteRT's own kernels. A MAXIMUM of NaN and a
# constant is that constant with LiteRT's own kernels, and NaN with XNNPACK. So a network may return a plausible score for
# a broken input, depending on the delegate.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3
"$directory/venv/bin/python" - <<'PYTHON'
import numpy as np
import tensorflow as tf

RESOLVERS = {
    "XNNPACK": tf.lite.experimental.OpResolverType.BUILTIN,
    "built-in": tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
}


def of_nan(function, resolver):
    traced = tf.function(function, input_signature=[tf.TensorSpec([1, 4])]).get_concrete_function()
    network = tf.lite.TFLiteConverter.from_concrete_functions([traced]).convert()
    interpreter = tf.lite.Interpreter(model_content=network, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.full((1, 4), np.nan, np.float32))
    interpreter.invoke()
    return float(interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0, 0])


print("tensorflow", tf.__version__)
seen = {}
for name, function in (("exp", tf.exp), ("maximum", lambda x: tf.maximum(x, -1.0))):
    for kernels, resolver in RESOLVERS.items():
        seen[name, kernels] = of_nan(function, resolver)
        print(f"{name} of NaN, {kernels} kernels: {seen[name, kernels]}")
assert seen["exp", "XNNPACK"] == 0 and np.isnan(seen["exp", "built-in"])
assert np.isnan(seen["maximum", "XNNPACK"]) and seen["maximum", "built-in"] == -1
PYTHON
