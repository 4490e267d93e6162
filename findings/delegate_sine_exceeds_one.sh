#!/usr/bin/env bash
# LiteRT 2.3.0: XNNPACK's sine and cosine of large numbers are no sine and cosine.
#
# Expected: a result between -1 and 1, as of numpy, TensorFlow and LiteRT's own kernels.
# Observed: with XNNPACK, the default, the error grows with the number: it is 1e-3 at 1e9, and results are in the thousands
# at 1e10. Timestamps in seconds (1.8e9) or milliseconds (1.8e12) as periodic features reach these numbers.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 numpy==2.4.6 ai-edge-litert==2.3.0
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType

X = np.array([1, 1e3, 1e6, 1e9, 1e10], np.float32)


def outputs(content, resolver):
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], X)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


print("ai-edge-litert", version("ai-edge-litert"))
for name, function, exact in (("sine", tf.sin, np.sin), ("cosine", tf.cos, np.cos)):
    traced = tf.function(function, input_signature=[tf.TensorSpec(X.shape)]).get_concrete_function()
    content = tf.lite.TFLiteConverter.from_concrete_functions([traced]).convert()
    expected = exact(X.astype(np.float64))
    own = np.abs(outputs(content, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES) - expected)
    delegate = np.abs(outputs(content, OpResolverType.AUTO) - expected)
    for x, *errors in zip(X, own, delegate):
        print(f"{name} of {x:g}: error {errors[0]:.1e} with LiteRT's own kernels, {errors[1]:.1e} with XNNPACK")
    assert own.max() < 1e-6
    assert delegate[0] < 1e-6 and delegate[3] > 1e-4 and delegate[4] > 100
PYTHON
