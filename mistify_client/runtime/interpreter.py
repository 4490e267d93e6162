"""A network in LiteRT, with memory for inputs of the most recent shapes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import BRANCH_INPUT, NETWORK, Manifest, TensorInfo, branch_signature
from mistify.package.opened import Package
from mistify.tflite.resizable import resizable
from mistify.tflite.session import Session
from mistify_client.assembly.memory import return_memory
from mistify_client.runtime.inputs import Array


class Ran(NamedTuple):
    """The result of an inference.

    Attributes:
        outputs: Output name -> [batch, ...].
        option: Index of the option that ran: another one while the requested one is being loaded.
        stages: The stage that answered each row; empty unless the option has exits.
        helped: Whether a helper has run a part of it.
    """

    outputs: dict[str, Array]
    option: int
    stages: tuple[int, ...] = ()
    helped: bool = False


#: Runs an inference on inputs, by name, with the option at an index.
Run = Callable[[Mapping[str, Array], int], Ran]

#: The shapes of the inputs in order.
Shapes = tuple[tuple[int, ...], ...]

#: Minimum size of networks whose freed memory is returned to the system. That takes as long as loading a
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
            content: Bytes of the `.tflite` file, which accepts any batch size.
            threads: Number of threads of LiteRT.

        Raises:
            ValueError: The content is not a network, or its inputs and outputs differ from the manifest.
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
        """The shapes of the last inputs, for which memory is allocated; None before the first inference."""
        return self._shapes

    def __call__(self, inputs: Mapping[str, Array], branch: int) -> dict[str, Array]:
        """Run an inference.

        Args:
            inputs: Input name -> array [batch, ...] in the dtype of the network.
            branch: Number of the branch to run; ignored if the network has none.

        Returns:
            Output name -> array [batch, ...].

        Raises:
            RuntimeError: There is not enough memory for the examples, or the network rejects their values.
        """
        return self.prepared(inputs)(inputs, branch).outputs

    def running(self, wanted: int) -> int:
        """Return the branch that runs for a requested one: the same, because all are in memory."""
        return wanted

    def prepared(self, inputs: Mapping[str, Array]) -> Run:
        """Return a function that runs inferences on inputs of these shapes, in allocated memory.

        A branch allocates it when it first runs.

        Raises:
            RuntimeError: There is not enough memory.
        """
        shapes = {name: array.shape for name, array in inputs.items()}
        if not self._branches:
            self._session.resize(shapes)
        self._shapes = tuple(shapes.values())
        return self._run_branch if self._branches else self._run

    def warm_up(self, shapes: Shapes | None = None) -> None:
        """Run every branch once, on zeros, so that its first inference is not slower than others.

        Args:
            shapes: Shapes of the inputs; single examples by default.
        """
        inputs = zeros(self.manifest.inputs, shapes)
        for branch in range(len(self.manifest.branches) or 1):
            self(inputs, branch)

    def _run(self, inputs: Mapping[str, Array], branch: int) -> Ran:
        return Ran(self._session(inputs), branch)

    def _run_branch(self, inputs: Mapping[str, Array], branch: int) -> Ran:
        return Ran(self._session.run(self._branches[branch], inputs), branch)


def open_network(package: Package, threads: int) -> Network:
    """Open the network of a package, ready for single examples.

    Args:
        threads: Number of threads of LiteRT.

    Raises:
        MistifyError: CORRUPT_PACKAGE, it is damaged, cannot be used, or does not match the manifest.
    """
    try:
        network = Network(package.manifest, resizable(package.read(NETWORK)), threads)
        network.warm_up()
    except (ValueError, RuntimeError) as error:
        message = f"{package.directory / NETWORK} cannot be used: {error}"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message) from error
    if package.manifest.files[NETWORK].size >= _LARGE_BYTES:
        return_memory()  # used for the file, and for weights packed in a trial of LiteRT
    return network


def zeros(inputs: Sequence[TensorInfo], shapes: Shapes | None = None) -> dict[str, Array]:
    """Return an array of zeros for each input, by name.

    Args:
        shapes: Shapes of the arrays; those of a single example by default.
    """
    if shapes is None:
        shapes = tuple(tuple(max(size, 1) for size in info.shape) for info in inputs)
    return {info.name: np.zeros(shape, info.dtype) for info, shape in zip(inputs, shapes, strict=True)}


def _check_names(kind: str, expected: set[str], actual: Mapping[str, object]) -> None:
    if expected != set(actual):
        raise ValueError(f"its {kind} are {', '.join(actual)}, but the manifest has others")
