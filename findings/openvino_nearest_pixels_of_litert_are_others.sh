#!/usr/bin/env bash
# OpenVINO 2026.4.1 takes other pixels than LiteRT when it makes images smaller by the nearest pixel.
#
# Expected: ResizeNearestNeighbor with `half_pixel_centers`, as TensorFlow 2 converts `tf.image.resize` and Keras its
# `Resizing`, takes the pixel at floor((i + 0.5) * scale): of 8 pixels, the odd ones for a size of 4. LiteRT 2.3.0 does
# so.
# Observed: OpenVINO reads the option of the file and takes the even ones, which are those without it, and without a
# warning. Masks and images are shifted by up to half a new pixel, which is one old pixel for half of the size, and more
# for less. Larger sizes by whole factors, for which most networks use the operator, are right, and so is the operator
# without the option.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet openvino==2026.4.1 ai-edge-litert==2.3.0 flatbuffers==25.12.19 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version
from pathlib import Path

import flatbuffers
import numpy as np
import openvino
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

print(*(f"{name} {version(name)}" for name in ("openvino", "ai-edge-litert")))
OLD = 8
image = np.arange(OLD * OLD, dtype=np.float32).reshape(1, OLD, OLD, 1)


def write(new, half_pixel_centers):
    """Write a network that resizes the image to `new` x `new` pixels."""
    size = np.array([new, new], np.int32)
    code = schema.BuiltinOperator.RESIZE_NEAREST_NEIGHBOR
    floats, integers = schema.TensorType.FLOAT32, schema.TensorType.INT32
    tensors = [
        schema.TensorT(shape=list(image.shape), type=floats, buffer=0, name=b"x"),
        schema.TensorT(shape=[2], type=integers, buffer=1, name=b"size"),
        schema.TensorT(shape=[1, new, new, 1], type=floats, buffer=0, name=b"y"),
    ]
    resize = schema.OperatorT(
        inputs=[0, 1],
        outputs=[2],
        builtinOptionsType=schema.BuiltinOptions.ResizeNearestNeighborOptions,
        builtinOptions=schema.ResizeNearestNeighborOptionsT(halfPixelCenters=half_pixel_centers),
    )
    model = schema.ModelT(
        version=3,
        operatorCodes=[schema.OperatorCodeT(deprecatedBuiltinCode=code, builtinCode=code, version=3)],
        subgraphs=[schema.SubGraphT(tensors=tensors, inputs=[0], outputs=[2], operators=[resize])],
        buffers=[schema.BufferT(), schema.BufferT(data=np.frombuffer(size.tobytes(), np.uint8))],
    )
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    Path("model.tflite").write_bytes(builder.Output())


def by_litert():
    interpreter = Interpreter("model.tflite")
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def by_openvino():
    core = openvino.Core()
    compiled = core.compile_model(core.read_model("model.tflite"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled([image])[0]


for new in (2, 4, 5, 16, 24):
    for half_pixel_centers in (False, True):
        write(new, half_pixel_centers)
        columns = np.arange(new) + 0.5 * half_pixel_centers
        right = np.floor(columns * OLD / new).astype(int)
        litert, seen = ((array[0, 0, :, 0] % OLD).astype(int) for array in (by_litert(), by_openvino()))
        np.testing.assert_array_equal(litert, right)
        if new < OLD:
            print(f"{new} pixels, half_pixel_centers={half_pixel_centers}: OpenVINO takes {seen}, LiteRT {litert}")
        assert (seen == litert).all() == (new > OLD or not half_pixel_centers)
        np.testing.assert_array_equal(seen, np.floor(np.arange(new) * OLD / new).astype(int))
PYTHON
