"""A network in LiteRT, whose memory is allocated once for each batch size in use."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from mistify.errors import ErrorCode, MistifyError
from mistify.litert import open_interpreter
from mistify.package.manifest import BRANCH_INPUT, NETWORK, SIGNATURE, Manifest, TensorInfo, branch_signature
from mistify.tflite.resizable import resizable
from mistify_client.runtime.inputs import Array

#: Memory stays allocated for so many batch sizes, those of the last calls.
ALLOCATIONS: Final = 4

#: Runs an inference on inputs, by name, with the option of a number. Returns the outputs by name, and the
#: number of the option that ran: another one while that which is wanted is being loaded.
Run = Callable[[Mapping[str, Array], int], tuple[dict[str, Array], int]]

#: The shapes of the inputs in their order.
Shapes = tuple[tuple[int, ...], ...]


class Network:
    """The network of a package, for one thread at a time.

    Its file is read once: it may be removed or replaced while the network is in use.

    Attributes:
        manifest: of the package.
        threads: how many LiteRT runs it with.
    """

    def __init__(self, manifest: Manifest, content: bytes, threads: int) -> None:
        self.manifest = manifest
        self.threads = threads
        self._content = content
        self._allocations: dict[Shapes, _Allocation] = {}

    @property
    def shapes(self) -> Sequence[Shapes]:
        """Return the shapes of inputs for which memory is allocated."""
        return list(self._allocations)

    def __call__(self, inputs: Mapping[str, Array], branch: int) -> dict[str, Array]:
        """Run an inference.

        Args:
            inputs: name -> array [batch, ...] in the dtype of the network.
            branch: the branch that runs; ignored where the network has none.

        Returns:
            Name of the output -> array [batch, ...].
        """
        outputs, _ = self.prepared(inputs)(inputs, branch)
        return outputs

    def running(self, wanted: int) -> int:
        """Return the branch that runs where one is wanted: that one, as all are in memory."""
        return wanted

    def prepared(self, inputs: Mapping[str, Array]) -> Run:
        """Return a function that runs inferences on inputs of these shapes, in memory that is allocated."""
        shapes = tuple(array.shape for array in inputs.values())
        allocation = self._allocations.pop(shapes, None) or self._allocated(shapes)
        self._allocations[shapes] = allocation  # the last entry is the one that was used last
        return allocation.run

    def warm_up(self, shapes: Shapes | None = None) -> None:
        """Run every branch once, on zeros, so that a first inference takes no longer than others.

        Args:
            shapes: of the inputs; single examples if not given.
        """
        inputs = zeros(self.manifest.inputs, shapes)
        for branch in range(len(self.manifest.branches) or 1):
            self(inputs, branch)

    def _allocated(self, shapes: Shapes) -> "_Allocation":
        """Return memory for new shapes, if need be that of the shapes that were not used for longest."""
        if len(self._allocations) < ALLOCATIONS:
            allocation = _Allocation(self.manifest, self._content, self.threads)
        else:
            allocation = self._allocations.pop(next(iter(self._allocations)))
        allocation.resize(shapes)
        return allocation


def open_network(directory: Path, manifest: Manifest, threads: int) -> Network:
    """Open the network of a package that has been verified, ready for single examples.

    Args:
        directory: of the package.
        manifest: of the package.
        threads: how many LiteRT runs the network with.

    Raises:
        MistifyError: CORRUPT_PACKAGE, it cannot be used or is not what the manifest describes.
    """
    try:
        network = Network(manifest, resizable((directory / NETWORK).read_bytes()), threads)
        network.warm_up()
    except (ValueError, RuntimeError) as error:
        message = f"{directory / NETWORK} cannot be used: {error}"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message) from error
    return network


def zeros(inputs: Sequence[TensorInfo], shapes: Shapes | None = None) -> dict[str, Array]:
    """Return an array of zeros for each input, by name.

    Args:
        inputs: of a network.
        shapes: of the arrays; those of a single example if not given.
    """
    if shapes is None:
        shapes = tuple(tuple(max(size, 1) for size in info.shape) for info in inputs)
    return {info.name: np.zeros(shape, info.dtype) for info, shape in zip(inputs, shapes, strict=True)}


class _Allocation:
    """An interpreter, and its memory for inputs of one shape.

    Raises:
        ValueError: the content is no network, or its inputs and outputs are not those of the manifest.
    """

    def __init__(self, manifest: Manifest, content: bytes, threads: int) -> None:
        self._interpreter = open_interpreter(content, threads)
        signature = self._interpreter.get_signature_runner(SIGNATURE)
        takes, gives = signature.get_input_details(), signature.get_output_details()
        branch = {BRANCH_INPUT} if manifest.branches else set()
        if {info.name for info in manifest.inputs} | branch != set(takes):
            raise ValueError(f"its inputs are {', '.join(takes)}, which are not those of the manifest")
        if {info.name for info in manifest.outputs} != set(gives):
            raise ValueError(f"its outputs are {', '.join(gives)}, which are not those of the manifest")
        self._inputs = [(info.name, takes[info.name]["index"]) for info in manifest.inputs]
        self._outputs = [(info.name, gives[info.name]["index"]) for info in manifest.outputs]
        numbers = range(len(manifest.branches))
        self._branches = [self._interpreter.get_signature_runner(branch_signature(each)) for each in numbers]

    def resize(self, shapes: Shapes) -> None:
        """Allocate memory for inputs of other shapes; a branch does so when it runs for the first time."""
        if self._branches:
            return
        for (_, index), shape in zip(self._inputs, shapes, strict=True):
            self._interpreter.resize_tensor_input(index, shape)
        self._interpreter.allocate_tensors()

    def run(self, inputs: Mapping[str, Array], branch: int) -> tuple[dict[str, Array], int]:
        """Run an inference, and return the outputs by name, which are the caller's own, and the branch."""
        if self._branches:
            return self._branches[branch](**inputs), branch
        interpreter = self._interpreter
        for name, index in self._inputs:
            interpreter.set_tensor(index, inputs[name])
        interpreter.invoke()
        return {name: interpreter.get_tensor(index) for name, index in self._outputs}, branch
