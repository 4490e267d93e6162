#!/usr/bin/env bash
# OpenCV 5.0.0 computes the softmax of LiteRT networks for images over the columns instead of the classes.
#
# Expected: Softmax of LiteRT is over the last axis, which is the one of channels in images of rows, columns and
# channels: a segmentation network gives the probabilities of each pixel's classes, which add up to 1.
# Observed: OpenCV moves the channels in front of rows and columns, and still takes the last axis, without a warning. The
# values of each row and channel add up to 1, those of a pixel do not, and the most probable class of many pixels is
# another one. Shapes are right, and so are the values in front of the softmax, and its results for a single row of
# classes, as classifiers have.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet opencv-python-headless==5.0.0.93 ai-edge-litert==2.3.0 flatbuffers==25.12.19 \
    numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version
from pathlib import Path

import cv2
import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

print("opencv", cv2.__version__, "ai-edge-litert", version("ai-edge-litert"))
ROWS, COLUMNS, CHANNELS, CLASSES = 6, 8, 3, 5
generator = np.random.default_rng(0)
image = generator.normal(size=(1, ROWS, COLUMNS, CHANNELS)).astype(np.float32)
weights = generator.normal(size=(CLASSES, 1, 1, CHANNELS)).astype(np.float32)


def write(with_softmax):
    """Write a network with a convolution of one pixel, and a softmax if it shall have one."""
    shapes = [image.shape, weights.shape, (CLASSES,), (1, ROWS, COLUMNS, CLASSES), (1, ROWS, COLUMNS, CLASSES)]
    tensors = [
        schema.TensorT(shape=list(shape), type=schema.TensorType.FLOAT32, buffer=buffer, name=name.encode())
        for name, shape, buffer in zip("xwbcy", shapes, (0, 1, 2, 0, 0))
    ]
    codes = [schema.BuiltinOperator.CONV_2D, schema.BuiltinOperator.SOFTMAX]
    convolution = schema.OperatorT(
        opcodeIndex=0,
        inputs=[0, 1, 2],
        outputs=[3],
        builtinOptionsType=schema.BuiltinOptions.Conv2DOptions,
        builtinOptions=schema.Conv2DOptionsT(strideH=1, strideW=1),
    )
    softmax = schema.OperatorT(
        opcodeIndex=1,
        inputs=[3],
        outputs=[4],
        builtinOptionsType=schema.BuiltinOptions.SoftmaxOptions,
        builtinOptions=schema.SoftmaxOptionsT(beta=1.0),
    )
    operators, output = ([convolution, softmax], 4) if with_softmax else ([convolution], 3)
    model = schema.ModelT(
        version=3,
        description=b"",
        operatorCodes=[schema.OperatorCodeT(deprecatedBuiltinCode=code, builtinCode=code, version=1) for code in codes],
        subgraphs=[schema.SubGraphT(name=b"main", tensors=tensors[: output + 1], inputs=[0], outputs=[output], operators=operators)],
        buffers=[
            schema.BufferT(),
            schema.BufferT(data=np.frombuffer(weights.tobytes(), np.uint8)),
            schema.BufferT(data=np.zeros(4 * CLASSES, np.uint8)),
        ],
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


def by_opencv():
    network = cv2.dnn.readNetFromTFLite("model.tflite")
    network.setInput(np.ascontiguousarray(image.transpose(0, 3, 1, 2)))
    return network.forward().transpose(0, 2, 3, 1)


write(with_softmax=False)
np.testing.assert_allclose(by_opencv(), by_litert(), atol=1e-5)
write(with_softmax=True)
scores = image @ weights[:, 0, 0].T
right, seen = by_litert(), by_opencv()
for probabilities, axis in ((right, -1), (seen, 2)):
    exponentials = np.exp(scores)
    np.testing.assert_allclose(probabilities, exponentials / exponentials.sum(axis=axis, keepdims=True), atol=1e-5)
changed = np.mean(seen.argmax(axis=-1) != right.argmax(axis=-1))
print(f"sums of a pixel's classes: {seen.sum(axis=-1).min():.3f} to {seen.sum(axis=-1).max():.3f}; "
      f"the class of {changed:.2f} of the pixels changes")
assert changed > 0.1
PYTHON
