#!/usr/bin/env bash
# ai-edge-litert 2.3.0 does not run the operators of a `.tflite` in the order of the file when XNNPACK takes some of
# them, so that a network may need many times the memory that its order allows.
#
# Expected: operators run in the order of the file, which the converter or a tool has chosen; memory follows from it.
# Observed: LiteRT moves each operator that XNNPACK supports in front of those that it does not, as soon as its inputs are
# there. Eight large tensors, each of which is read by the next operator and could be freed, then exist at once. Metadata
# named "model_control_dependencies", which LiteRT reads though its documentation does not mention them, keep the order.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet ai-edge-litert==2.3.0 flatbuffers==25.12.19 numpy==2.4.6
cd "$directory"
cat > network.py <<'PYTHON'
"""A network of eight branches: a product of 8 MB, which XNNPACK runs, and a gather of its first number, which it does not."""

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

BRANCHES, NUMBERS = 8, 2**21


def network(in_order):
    """Return the file; with the metadata if its order shall be kept."""
    buffers, tensors, operators = [schema.BufferT()], [], []

    def tensor(shape, content=None, kind=schema.TensorType.FLOAT32):
        buffer = 0
        if content is not None:
            buffer = len(buffers)
            buffers.append(schema.BufferT(data=np.frombuffer(content.tobytes(), np.uint8)))
        tensors.append(schema.TensorT(shape=list(shape), type=kind, buffer=buffer, name=f"t{len(tensors)}".encode()))
        return len(tensors) - 1

    def operator(code, options, inputs, output):
        kind = getattr(schema.BuiltinOptions, f"{type(options).__name__[:-1]}")
        operators.append(
            schema.OperatorT(
                opcodeIndex=code, inputs=inputs, outputs=[output], builtinOptions=options, builtinOptionsType=kind
            )
        )
        return output

    x = tensor([NUMBERS])
    first = tensor([1], np.zeros(1, np.int32), schema.TensorType.INT32)
    numbers = []
    for branch in range(BRANCHES):
        factor = tensor([1], np.array([branch + 1], np.float32))
        product = operator(0, schema.MulOptionsT(), [x, factor], tensor([NUMBERS]))
        numbers.append(operator(1, schema.GatherOptionsT(), [product, first], tensor([1])))
    y = operator(2, schema.ConcatenationOptionsT(), numbers, tensor([BRANCHES]))
    codes = [schema.BuiltinOperator.MUL, schema.BuiltinOperator.GATHER, schema.BuiltinOperator.CONCATENATION]
    graph = schema.SubGraphT(tensors=tensors, inputs=[x], outputs=[y], operators=operators)
    model = schema.ModelT(
        version=3,
        operatorCodes=[schema.OperatorCodeT(deprecatedBuiltinCode=one, builtinCode=one, version=1) for one in codes],
        subgraphs=[graph],
        buffers=buffers,
        metadata=[],
    )
    if in_order:
        # Version 1, one graph, and how many pairs of operators: each is twice its number, all below 128.
        count = len(operators) - 1
        pairs = [2 * at for first in range(count) for at in (first, first + 1)]
        buffers.append(schema.BufferT(data=np.array([1, 1, count, *pairs], np.uint8)))
        model.metadata.append(schema.MetadataT(name=b"model_control_dependencies", buffer=len(buffers) - 1))
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
PYTHON
cat > run.py <<'PYTHON'
"""Run the network once and print by how many products of 8 MB the memory of the process rises."""

import sys

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from network import BRANCHES, NUMBERS, network


def megabytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


kernels = OpResolverType.AUTO if sys.argv[1] == "xnnpack" else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
interpreter = Interpreter(
    model_content=network(sys.argv[2] == "ordered"), num_threads=1, experimental_op_resolver_type=kernels
)
x = np.ones(NUMBERS, np.float32)
before = megabytes()
interpreter.allocate_tensors()
interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
interpreter.invoke()
(output,) = interpreter.get_output_details()
assert interpreter.get_tensor(output["index"]).tolist() == list(range(1, BRANCHES + 1))
print(round((megabytes() - before) / 8 - 1))  # without the input
PYTHON
builtin=$("$directory/venv/bin/python" run.py builtin free 2> builtin.log)
xnnpack=$("$directory/venv/bin/python" run.py xnnpack free 2> xnnpack.log)
ordered=$("$directory/venv/bin/python" run.py xnnpack ordered 2> ordered.log)
echo "ai-edge-litert $("$directory/venv/bin/pip" show ai-edge-litert | sed -n 's/^Version: //p')"
echo "products of 8 MB in memory at once, without XNNPACK: $builtin, with it: $xnnpack, in order: $ordered"
grep -q XNNPACK xnnpack.log
[ "$builtin" -le 2 ] && [ "$xnnpack" -ge 7 ] && [ "$ordered" -le 2 ]
