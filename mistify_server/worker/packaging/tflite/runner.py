"""Networks in LiteRT: their inputs and outputs, and running them."""

from collections.abc import Collection, Mapping
from itertools import chain
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from executors.data.storage import Rows
from mistify.litert import Interpreter, OpResolverType
from mistify.package.manifest import TensorInfo

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

#: The signature of a network that has only one.
SIGNATURE = "serving_default"

#: Examples that are run at once, where there are many.
BATCH = 250

#: The most elements of a tensor: it takes half a gibibyte then, and an inference several of these.
_MOST_ELEMENTS = 2**27


class Runner:
    """A network in LiteRT, called with arrays [batch, ...] by the names of its inputs.

    Inputs and outputs are floats, also where those of the network are integers.

    Args:
        network: A `.tflite`.
        signature: The signature by which it runs, such as that of a branch.

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
        """Return the outputs [batch, ...] by name."""
        tensors = {name: info.quantized(inputs[name]) for name, info in self.inputs.items()}
        outputs = self._signature(**tensors)
        return {name: info.dequantized(outputs[name]) for name, info in self.outputs.items()}

    def run_all(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs for many inputs, some at a time; both [examples, ...] by name."""
        rows = {name: Rows() for name in self.outputs}
        at_once, count = self.examples_at_once(BATCH), len(next(iter(inputs.values())))
        for at in range(0, count, at_once):
            batch = {name: array[at : at + at_once] for name, array in inputs.items()}
            for name, output in self(batch).items():
                rows[name].append(output)
        return {name: of.array() for name, of in rows.items()}

    def examples_at_once(self, most: int) -> int:
        """Return how many examples fit into a batch: fewer than `most` where its tensors are large."""
        return max(1, min(most, _MOST_ELEMENTS // max(1, self._example)))


def _elements(entry: Mapping[str, Any]) -> int:
    """Return the elements of a tensor for one example; 0 where it does not grow with the batch."""
    return prod(map(int, entry["shape"])) if -1 in entry["shape_signature"] else 0


def signatures(network: bytes) -> Collection[str]:
    """Return the names of the signatures by which a network runs."""
    names: Collection[str] = Interpreter(model_content=network, num_threads=1).get_signature_list()
    return names


def run_network(network: bytes, inputs: Arrays) -> dict[str, Array]:
    """Run a network on a batch of inputs, and return its outputs, both [batch, ...] by name."""
    return Runner(network)(inputs)


class Example:
    """The tensors of a graph while one example, of zeros, runs through it.

    Args:
        network: A `.tflite`.
        signature: The signature that runs.
        graph: The number of its graph.
    """

    def __init__(self, network: bytes, signature: str, graph: int) -> None:
        self._interpreter = Interpreter(
            model_content=network,
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            experimental_preserve_all_tensors=True,
        )
        self._graph = graph
        run = self._interpreter.get_signature_runner(signature)
        run(**{name: np.zeros(one["shape"], one["dtype"]) for name, one in run.get_input_details().items()})

    def shapes(self) -> Mapping[int, list[int]]:
        """Return the shape of each tensor by its number."""
        details = self._interpreter.get_tensor_details(self._graph)
        return {one["index"]: [int(size) for size in one["shape"]] for one in details}

    def value(self, tensor: int) -> Array:
        """Return the value of a tensor."""
        value: Array = self._interpreter.get_tensor(tensor, self._graph)
        return value


def tensor_shapes(network: bytes) -> dict[int, tuple[int, ...]]:
    """Return the shapes of a network's tensors by their numbers, for a batch of one.

    They are known once an example of zeros has been run. All inputs are set: LiteRT does not clear memory,
    and what happens to be there may be no index into a table.
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
