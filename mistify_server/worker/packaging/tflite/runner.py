"""Networks in LiteRT's separate process: their inputs and outputs, and their execution."""

from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from weakref import finalize

import numpy as np
import numpy.typing as npt

from executors.data.storage import Rows
from mistify_server.worker.packaging.tflite.execution import (
    describe,
    ranges,
    run,
    run_example,
    shapes,
    signature_names,
)
from mistify_server.worker.packaging.tflite.isolation import in_litert

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

#: The signature of a network with only one.
SIGNATURE = "serving_default"

#: Batch size for many examples.
BATCH = 250

#: Maximum number of elements per tensor: this takes half a gibibyte, and an inference needs several times
#: that.
_MOST_ELEMENTS = 2**27


class Runner:
    """A network in LiteRT, called with arrays [batch, ...] by input name.

    Inputs and outputs are floats, even if the network's are integers.

    Args:
        network: A `.tflite`.
        signature: The signature to run, such as that of a branch.

    Attributes:
        inputs: Input -> name, dtype and shape; -1 is the batch.
        outputs: Output -> name, dtype and shape; -1 is the batch.

    Raises:
        LiteRtError: LiteRT cannot run the network; raised by the constructor and every call.
    """

    def __init__(self, network: bytes, signature: str = SIGNATURE) -> None:
        # Use a file, because the process that has the network open may have to be replaced.
        with NamedTemporaryFile(suffix=".tflite", delete=False) as file:
            path = Path(file.name)
            finalize(self, path.unlink, missing_ok=True)
            file.write(network)
        self._place = path, signature
        described = in_litert(describe, *self._place)
        self._example = described.example_elements
        self.inputs = described.inputs
        self.outputs = described.outputs

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs [batch, ...] by name."""
        outputs = in_litert(run, *self._place, {name: np.asarray(inputs[name]) for name in self.inputs})
        return {name: info.dequantized(outputs[name]) for name, info in self.outputs.items()}

    def run_all(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs for many inputs, computed in batches; both [examples, ...] by name."""
        rows = {name: Rows() for name in self.outputs}
        at_once, count = self.examples_at_once(BATCH), len(next(iter(inputs.values())))
        for at in range(0, count, at_once):
            batch = {name: array[at : at + at_once] for name, array in inputs.items()}
            for name, output in self(batch).items():
                rows[name].append(output)
        return {name: of.array() for name, of in rows.items()}

    def examples_at_once(self, most: int) -> int:
        """Return the number of examples that fit into a batch: `most`, or fewer for large tensors."""
        return max(1, min(most, _MOST_ELEMENTS // max(1, self._example)))


def signatures(network: bytes) -> Collection[str]:
    """Return the names of a network's signatures."""
    return in_litert(signature_names, network)


def run_network(network: bytes, inputs: Arrays) -> dict[str, Array]:
    """Run a network on a batch of inputs, and return its outputs, both [batch, ...] by name."""
    return Runner(network)(inputs)


def tensor_ranges(network: bytes, inputs: Arrays) -> Mapping[int, tuple[float, float]]:
    """Return the minimum and maximum of each float tensor of a network, by index.

    Args:
        network: A `.tflite` with the signature `SIGNATURE`.
        inputs: Input -> examples [n, ...] to run.

    Raises:
        LiteRtError: LiteRT cannot run the network.
    """
    return in_litert(ranges, network, SIGNATURE, dict(inputs))


class Example:
    """The tensors of a graph after running an example of zeros.

    Args:
        network: A `.tflite`.
        signature: The signature to run.
        graph: Index of its graph.

    Raises:
        LiteRtError: LiteRT cannot run the network; raised by the constructor.
    """

    def __init__(self, network: bytes, signature: str, graph: int) -> None:
        self._tensors = in_litert(run_example, network, signature, graph)

    def shapes(self) -> Mapping[int, list[int]]:
        """Return the shape of each tensor by index."""
        return self._tensors.shapes

    def value(self, tensor: int) -> Array:
        """Return the value of a tensor that may be a shape, with integers and at most one axis."""
        return self._tensors.shape_values[tensor]


def tensor_shapes(network: bytes) -> dict[int, tuple[int, ...]]:
    """Return the shapes of a network's tensors by index, for batch 1."""
    return in_litert(shapes, network)
