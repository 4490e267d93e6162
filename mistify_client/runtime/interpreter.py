"""A network in LiteRT, with memory for inputs of the shapes that ran last."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import BRANCH_INPUT, NETWORK, Manifest, TensorInfo, branch_signature
from mistify.package.opened import Package
from mistify.tflite.resizable import resizable
from mistify.tflite.session import Session
from mistify_client.assembly.memory import return_memory
from mistify_client.runtime.inputs import Array

#: Runs an inference on inputs, by name, with the option in a place. Returns the outputs by name, and the
#: place of the option that ran: another one while that which is wanted is being loaded.
Run = Callable[[Mapping[str, Array], int], tuple[dict[str, Array], int]]

#: The shapes of the inputs in their order.
Shapes = tuple[tuple[int, ...], ...]

#: The size of networks that leave memory behind which is worth giving back. That takes as long as loading a
#: small network.
_LARGE_BYTES: Final = 1_000_000


class Network:
    """The network of a package, for one thread at a time.

    Its file is read once: it may be removed or replaced while the network is in use.

    Attributes:
        threads: Number of threads of LiteRT.
    """

    def __init__(self, manifest: Manifest, content: bytes, threads: int) -> None:
        """Open a network.

        Args:
            content: Bytes of the `.tflite`, which accepts any batch size.
            threads: Number of threads of LiteRT.

        Raises:
            ValueError: The content is no network, or its inputs and outputs are not those of the manifest.
        """
        self.manifest = manifest
        self.threads = threads
        self._session = Session(content, threads)
        self._branches = [branch_signature(number) for number in range(len(manifest.branches))]
        self._shapes: Shapes | None = None
        branch = {BRANCH_INPUT} if manifest.branches else set()
        _check_names("inputs", {info.name for info in manifest.inputs} | branch, self._session.inputs)
        _check_names("outputs", {info.name for info in manifest.outputs}, self._session.outputs)

    @property
    def shapes(self) -> Shapes | None:
        """Return the shapes of the last inputs, for which memory is allocated; None before there are any."""
        return self._shapes

    def __call__(self, inputs: Mapping[str, Array], branch: int) -> dict[str, Array]:
        """Run an inference.

        Args:
            inputs: Input name -> array [batch, ...] in the dtype of the network.
            branch: Number of the branch to run; ignored where the network has none.

        Returns:
            Output name -> array [batch, ...].

        Raises:
            RuntimeError: There is no memory for so many examples, or the network refuses their values.
        """
        outputs, _ = self.prepared(inputs)(inputs, branch)
        return outputs

    def running(self, wanted: int) -> int:
        """Return the branch that runs when one is wanted: the same, as all are in memory."""
        return wanted

    def prepared(self, inputs: Mapping[str, Array]) -> Run:
        """Return a function that runs inferences on inputs of these shapes, in memory that is allocated.

        A branch allocates it when it runs.

        Raises:
            RuntimeError: There is not enough memory.
        """
        shapes = {name: array.shape for name, array in inputs.items()}
        if not self._branches:
            self._session.resize(shapes)
        self._shapes = tuple(shapes.values())
        return self._run_branch if self._branches else self._run

    def warm_up(self, shapes: Shapes | None = None) -> None:
        """Run every branch once, on zeros, so that a first inference takes no longer than others.

        Args:
            shapes: Shapes of the inputs; single examples if not given.
        """
        inputs = zeros(self.manifest.inputs, shapes)
        for branch in range(len(self.manifest.branches) or 1):
            self(inputs, branch)

    def _run(self, inputs: Mapping[str, Array], branch: int) -> tuple[dict[str, Array], int]:
        return self._session(inputs), branch

    def _run_branch(self, inputs: Mapping[str, Array], branch: int) -> tuple[dict[str, Array], int]:
        return self._session.run(self._branches[branch], inputs), branch


def open_network(package: Package, threads: int) -> Network:
    """Open the network of a package, ready for single examples.

    Args:
        threads: Number of threads of LiteRT.

    Raises:
        MistifyError: CORRUPT_PACKAGE, it is damaged, cannot be used, or is not what the manifest describes.
    """
    try:
        network = Network(package.manifest, resizable(package.read(NETWORK)), threads)
        network.warm_up()
    except (ValueError, RuntimeError) as error:
        message = f"{package.directory / NETWORK} cannot be used: {error}"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message) from error
    if package.manifest.files[NETWORK].size >= _LARGE_BYTES:
        return_memory()  # of what was read, and of weights that were packed to try LiteRT
    return network


def zeros(inputs: Sequence[TensorInfo], shapes: Shapes | None = None) -> dict[str, Array]:
    """Return an array of zeros for each input, by name.

    Args:
        shapes: Shapes of the arrays; those of a single example if not given.
    """
    if shapes is None:
        shapes = tuple(tuple(max(size, 1) for size in info.shape) for info in inputs)
    return {info.name: np.zeros(shape, info.dtype) for info, shape in zip(inputs, shapes, strict=True)}


def _check_names(kind: str, expected: set[str], actual: Mapping[str, object]) -> None:
    if expected != set(actual):
        raise ValueError(f"its {kind} are {', '.join(actual)}, but the manifest has others")
