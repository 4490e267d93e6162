"""Networks in LiteRT: what they take and give, running them, timing them."""

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from itertools import chain
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from mistify.machine import machine
from mistify.package.manifest import MeasuredLatency, TensorInfo
from mistify_server.packaging.conversion import SIGNATURE

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

#: What a latency is taken from: so many bursts of so many runs, or of so many seconds.
_BURSTS = 10
_BURST_RUNS = 40
_BURST_SECONDS = 0.2
_WARM_UP_RUNS = 5

#: The most elements of a tensor: it then takes half a gibibyte, and a pass some of these.
_MOST_ELEMENTS = 2**27


class Runner:
    """A network in LiteRT, called with arrays [batch, ...] by the names of its inputs.

    It takes and gives floats, also where the network takes and gives integers.

    Args:
        network: A `.tflite`.
        signature: By which it runs, such as that of a branch.

    Attributes:
        inputs: Name, dtype and shape of every input by its name; -1 is the batch.
        outputs: The same of every output.
    """

    def __init__(self, network: bytes, signature: str = SIGNATURE) -> None:
        interpreter = Interpreter(model_content=network, num_threads=1)
        # Also of the graphs between which it chooses.
        graphs = map(interpreter.get_tensor_details, range(interpreter.num_subgraphs()))
        self._example = max(map(_elements, chain.from_iterable(graphs)))
        self._signature = interpreter.get_signature_runner(signature)
        self.inputs = _described(self._signature.get_input_details())
        self.outputs = _described(self._signature.get_output_details())

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """The outputs by name."""
        given = {name: info.quantized(inputs[name]) for name, info in self.inputs.items()}
        found = self._signature(**given)
        return {name: info.dequantized(found[name]) for name, info in self.outputs.items()}

    def examples_at_once(self, most: int) -> int:
        """How many examples it is called on at a time: fewer than `most` where its tensors are large."""
        return max(1, min(most, _MOST_ELEMENTS // max(1, self._example)))


def _elements(entry: Mapping[str, Any]) -> int:
    """Of a tensor that grows with the batch, for one example; 0 of others, such as weights."""
    return prod(map(int, entry["shape"])) if -1 in entry["shape_signature"] else 0


def run(network: bytes, inputs: Arrays) -> dict[str, Array]:
    """What LiteRT makes of a batch of inputs, by the names of inputs and outputs."""
    return Runner(network)(inputs)


def tensor_shapes(network: bytes) -> dict[int, tuple[int, ...]]:
    """The shapes of a network's tensors by their numbers, as they are once one example of zeros has been run.

    LiteRT leaves its memory as it finds it: what is not set may be no index into a table.
    """
    interpreter = Interpreter(
        model_content=network, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    interpreter.allocate_tensors()
    for entry in interpreter.get_input_details():
        interpreter.set_tensor(entry["index"], np.zeros(entry["shape"], entry["dtype"]))
    interpreter.invoke()
    return {
        entry["index"]: tuple(int(size) for size in entry["shape"])
        for entry in interpreter.get_tensor_details()
    }


def measure_latency(
    network: bytes, threads: int = 1, batch: int = 1, signature: str | None = None
) -> MeasuredLatency:
    """Time inferences on this machine, for two seconds at the most where one takes less than 0.2 s.

    Those of a network by its only signature, or else by one of several, which takes Python a little longer.

    Other work on the machine only ever adds to what an inference takes, and comes in spells. So the burst
    with the lowest median tells what the network takes; the median within it leaves out single lucky runs.
    """
    interpreter = Interpreter(model_content=network, num_threads=threads)
    infer = _ready(interpreter, batch) if signature is None else _ready_by(signature, interpreter, batch)
    for _ in range(_WARM_UP_RUNS):
        infer()
    bursts = [_burst(infer) for _ in range(_BURSTS)]
    best = min(bursts, key=statistics.median)
    return MeasuredLatency(
        median_ms=statistics.median(best),
        p95_ms=float(np.quantile(best, 0.95)),
        runs=sum(map(len, bursts)),
        threads=threads,
        machine=machine(),
        runtime=f"ai-edge-litert {version('ai-edge-litert')}",
    )


def _ready(interpreter: Interpreter, batch: int) -> Callable[[], object]:
    """An inference on random inputs."""
    for entry in interpreter.get_input_details():
        interpreter.resize_tensor_input(entry["index"], [batch, *entry["shape"][1:]])
    interpreter.allocate_tensors()
    for entry in interpreter.get_input_details():
        interpreter.set_tensor(entry["index"], _random(entry, batch))
    infer: Callable[[], object] = interpreter.invoke
    return infer


def _ready_by(signature: str, interpreter: Interpreter, batch: int) -> Callable[[], object]:
    """An inference by a signature on random inputs."""
    runner = interpreter.get_signature_runner(signature)
    return partial(
        runner, **{name: _random(entry, batch) for name, entry in runner.get_input_details().items()}
    )


def _random(entry: Mapping[str, Any], batch: int) -> Array:
    shape = (batch, *entry["shape"][1:])
    return np.random.default_rng(0).uniform(size=shape).astype(entry["dtype"])


def _burst(infer: Callable[[], object]) -> list[float]:
    """What each of several runs took, in milliseconds."""
    taken: list[float] = []
    deadline = time.perf_counter() + _BURST_SECONDS
    while len(taken) < _BURST_RUNS and (not taken or time.perf_counter() < deadline):
        start = time.perf_counter()
        infer()
        taken.append((time.perf_counter() - start) * 1e3)
    return taken


def _described(details: Mapping[str, Mapping[str, Any]]) -> dict[str, TensorInfo]:
    return {name: _describe(name, entry) for name, entry in details.items()}


def _describe(name: str, entry: Mapping[str, Any]) -> TensorInfo:
    dtype = np.dtype(entry["dtype"])
    sizes = [int(size) for size in entry["shape"]]
    shape = (-1, *sizes[1:]) if sizes else ()
    scale, zero_point = entry["quantization"]
    if not scale:
        return TensorInfo(name=name, dtype=dtype.name, shape=shape)
    return TensorInfo(
        name=name, dtype=dtype.name, shape=shape, scale=float(scale), zero_point=int(zero_point)
    )
