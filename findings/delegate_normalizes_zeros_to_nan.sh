#!/usr/bin/env bash
# LiteRT 2.3.0: a Keras layer that gives zeros for a vector of zeros gives NaN with XNNPACK, which is on by default.
#
# Expected: UnitNormalization of zeros is zeros, as in Keras 3.15.1 and with LiteRT's own kernels. Keras relies on the
# reciprocal square root of zero being infinite.
# Observed: XNNPACK's RSQRT of zero is NaN, and so is each output of the example. A ReLU in front of the layer makes such
# vectors common. The converted file is the same for both; nothing is reported.
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

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType

ROWS = np.array([[3, 4], [0, 0]], np.float32)
inputs = keras.Input((2,), batch_size=2)
model = keras.Model(inputs, keras.layers.UnitNormalization()(inputs))
traced = tf.function(model, input_signature=[tf.TensorSpec(ROWS.shape)]).get_concrete_function()
content = tf.lite.TFLiteConverter.from_concrete_functions([traced]).convert()


def outputs(resolver):
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], ROWS)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


print("ai-edge-litert", version("ai-edge-litert"), "keras", keras.__version__)
results = {
    "Keras": model(ROWS).numpy(),
    "LiteRT's own kernels": outputs(OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES),
    "XNNPACK": outputs(OpResolverType.AUTO),
}
for name, result in results.items():
    print(f"{name}: {result.tolist()}")
    np.testing.assert_allclose(result[0], [0.6, 0.8], rtol=1e-6)
    assert np.isnan(result[1]).all() if name == "XNNPACK" else (result[1] == 0).all()
PYTHON
