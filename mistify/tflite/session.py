"""A network in LiteRT, whose weights are packed once, for all batch sizes."""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from mistify.litert import Interpreter, open_interpreter
from mistify.package.manifest import SIGNATURE

Array = npt.NDArray[Any]

#: Tensors [batch, ...] by name, in the types of the network.
Tensors = Mapping[str, Array]

Shape = tuple[int, ...]


class Session:
    """A network in one interpreter, for one thread at a time.

    LiteRT packs the weights of an interpreter once, and keeps memory for activations of the last shapes.
    Other shapes cost some microseconds for each operator, less than another interpreter would.

    If an inference fails because there is no memory for so many examples, LiteRT 2.3 may leave an interpreter
    with which a later inference ends the process. The network is then opened again.

    Attributes:
        inputs: Input of `SIGNATURE` -> LiteRT's description.
        outputs: Output of `SIGNATURE` -> LiteRT's description.
    """

    def __init__(self, network: bytes, threads: int | None) -> None:
        """Open a network.

        Args:
            network: Content of a `.tflite` whose first graph is that of `SIGNATURE`.
            threads: None leaves the number to LiteRT.

        Raises:
            ValueError: It is no network, or has no such signature.
        """
        self._network, self._threads = network, threads
        self._runners: dict[str, Any] = {}
        self._shapes: Mapping[str, Shape] = {}
        self._interpreter = self._open()
        signature = self._interpreter.get_signature_runner(SIGNATURE)
        self.inputs: Mapping[str, Any] = signature.get_input_details()
        self.outputs: Mapping[str, Any] = signature.get_output_details()

    def resize(self, shapes: Mapping[str, Shape]) -> None:
        """Allocate memory for inputs of `SIGNATURE` that have these shapes.

        Raises:
            RuntimeError: There is not enough memory.
        """
        if shapes == self._shapes:
            return
        try:
            for name, shape in shapes.items():
                self._interpreter.resize_tensor_input(self.inputs[name]["index"], shape)
            self._interpreter.allocate_tensors()
        except RuntimeError:
            self._open_again()
            raise
        self._shapes = dict(shapes)

    def __call__(self, tensors: Tensors) -> dict[str, Array]:
        """Return the outputs of `SIGNATURE`, which are the caller's own, for inputs that fit it.

        Raises:
            RuntimeError: There is no memory for so many examples, or an operator refuses their values.
            ValueError: An input has another type, or a shape that the network cannot have.
        """
        self.resize({name: array.shape for name, array in tensors.items()})
        interpreter = self._interpreter
        for name, array in tensors.items():
            interpreter.set_tensor(self.inputs[name]["index"], array)
        try:
            interpreter.invoke()
        except RuntimeError:
            self._open_again()
            raise
        return {name: interpreter.get_tensor(entry["index"]) for name, entry in self.outputs.items()}

    def run(self, signature: str, tensors: Tensors) -> dict[str, Array]:
        """Return the outputs of any signature, as a call does; each keeps memory of its own.

        Raises:
            RuntimeError: As for a call.
            ValueError: As for a call, or there is no such signature.
        """
        if signature not in self._runners:
            self._runners[signature] = self._interpreter.get_signature_runner(signature)
        try:
            outputs: dict[str, Array] = self._runners[signature](**tensors)
        except RuntimeError:
            self._open_again()
            raise
        return outputs

    def _open(self) -> Interpreter:
        return open_interpreter(self._network, self._threads)

    def _open_again(self) -> None:
        self._runners, self._shapes = {}, {}
        self._interpreter = self._open()
