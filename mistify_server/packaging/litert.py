"""Converting networks to LiteRT, running them there, and timing them."""

import platform
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from executors.structure import fold_batch_norm
from mistify.manifest import MeasuredLatency, TensorInfo

Array = npt.NDArray[np.float32]

SIGNATURE = "serving_default"

_WARM_UP_RUNS = 5
_MAX_RUNS = 200
_MAX_SECONDS = 1.0


def convert(model: keras.Model) -> bytes:
    """A float32 `.tflite` with batch norm folded, one named signature, and a free batch dimension."""
    folded = fold_batch_norm(model)
    tensor = folded.inputs[0]
    # As constants: the converter leaves variables to be set at run time.
    trained = [tf.constant(variable) for variable in folded.trainable_variables]
    others = [tf.constant(variable) for variable in folded.non_trainable_variables]

    @tf.function(input_signature=[tf.TensorSpec(tensor.shape, tf.float32, name=tensor.name)], autograph=False)
    def serve(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs, _ = folded.stateless_call(trained, others, inputs, training=False)
        return {output_name(folded): outputs}

    module = tf.Module()
    module.serve = serve
    with tempfile.TemporaryDirectory() as directory:
        tf.saved_model.save(module, directory, signatures={SIGNATURE: serve})
        converted: bytes = tf.lite.TFLiteConverter.from_saved_model(directory).convert()
    return converted


def output_name(model: keras.Model) -> str:
    """The name of a model's one output: that of the layer that makes it."""
    name: str = model.outputs[0]._keras_history.operation.name
    return name


def run(network: bytes, inputs: Array) -> Array:
    """What LiteRT makes of a batch of inputs."""
    interpreter = Interpreter(model_content=network, num_threads=1)
    entry = interpreter.get_input_details()[0]
    interpreter.resize_tensor_input(entry["index"], inputs.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(entry["index"], inputs)
    interpreter.invoke()
    return np.asarray(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


def measure_latency(network: bytes, threads: int = 1) -> MeasuredLatency:
    """Time inferences at batch 1 on this machine, for a second at the most."""
    interpreter = Interpreter(model_content=network, num_threads=threads)
    interpreter.allocate_tensors()
    entry = interpreter.get_input_details()[0]
    example = np.random.default_rng(0).uniform(size=entry["shape"]).astype(entry["dtype"])
    interpreter.set_tensor(entry["index"], example)
    for _ in range(_WARM_UP_RUNS):
        interpreter.invoke()
    taken: list[float] = []
    deadline = time.perf_counter() + _MAX_SECONDS
    while len(taken) < _MAX_RUNS and (not taken or time.perf_counter() < deadline):
        start = time.perf_counter()
        interpreter.invoke()
        taken.append((time.perf_counter() - start) * 1e3)
    return MeasuredLatency(
        median_ms=statistics.median(taken),
        p95_ms=float(np.quantile(taken, 0.95)),
        runs=len(taken),
        threads=threads,
        machine=f"{platform.machine()} {_processor()}",
        runtime=f"ai-edge-litert {version('ai-edge-litert')}",
    )


def tensors(network: bytes) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """The inputs and outputs of the network's signature, with -1 for the batch dimension."""
    runner = Interpreter(model_content=network).get_signature_runner(SIGNATURE)
    inputs = tuple(_describe(name, entry) for name, entry in runner.get_input_details().items())
    outputs = tuple(_describe(name, entry) for name, entry in runner.get_output_details().items())
    return inputs, outputs


def _describe(name: str, entry: dict[str, npt.NDArray[np.int32]]) -> TensorInfo:
    shape = (-1, *(int(size) for size in entry["shape"][1:]))
    return TensorInfo(name=name, dtype=np.dtype(entry["dtype"]).name, shape=shape)


def _processor() -> str:
    """The processor's model name, where the system tells it."""
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.is_file():
        for line in cpu_info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"
