#!/usr/bin/env bash
# TensorFlow 2.21.0 converts infinite constants to the largest float, so that tests for infinity are always false.
#
# Expected: constants keep their values. `tf.math.is_inf` and comparisons with infinity are true for infinities, and a
# position that is masked by adding minus infinity is infinite.
# Observed: the file contains 3.4028235e38 in place of infinity, without a warning, and both LiteRT's own kernels and
# XNNPACK then compute with it: `is_inf` is false for all inputs, and 1 + inf is finite. `is_finite` is converted to a
# difference without a constant, and is right. A guard against broken inputs is thus lost by conversion.
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
from ai_edge_litert.interpreter import Interpreter, OpResolverType

LARGEST = np.finfo(np.float32).max
x = np.array([np.inf, -np.inf, 1], np.float32)


def converted(function, kernels):
    traced = tf.function(function, input_signature=[tf.TensorSpec(x.shape)]).get_concrete_function()
    content = tf.lite.TFLiteConverter.from_concrete_functions([traced]).convert()
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


print("tensorflow", tf.__version__, "ai-edge-litert", version("ai-edge-litert"))
for kernels in (OpResolverType.AUTO, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES):
    print(kernels.name)
    for name, function, expected, wrong in (
        ("is_inf", tf.math.is_inf, [True, True, False], [False, False, False]),
        ("x == inf", lambda x: tf.equal(x, np.inf), [True, False, False], [False, False, False]),
        ("is_finite", tf.math.is_finite, [False, False, True], [False, False, True]),
    ):
        in_litert = converted(function, kernels)
        print(f"{name}: TensorFlow {function(tf.constant(x)).numpy().tolist()}, LiteRT {in_litert.tolist()}")
        assert function(tf.constant(x)).numpy().tolist() == expected
        assert in_litert.tolist() == wrong
    masked = converted(lambda x: x - np.float32(np.inf), kernels)[2]
    print("1 - inf:", masked)
    assert masked == -LARGEST
PYTHON
