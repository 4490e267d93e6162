"""A network in LiteRT that packs its weights once for all batch sizes."""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from mistify.litert import Interpreter, open_interpreter
from mistify.package.manifest import SIGNATURE

Array = npt.NDArray[Any]

#: Tensors [batch, ...] by name, in the network's dtypes.
Tensors = Mapping[str, Array]

Shape = tuple[int, ...]


class Session:
    """A network in one interpreter, for one thread at a time.

    LiteRT packs the weights of an interpreter once, and keeps memory for activations of the most recent
    shapes. Other shapes cost a few microseconds per operator, less than a second interpreter would.

    If an inference fails because there is not enough memory for its examples, LiteRT 2.3 may leave the
    interpreter in a state in which a later inference crashes the process. The network is then reopened.

    Attributes:
        inputs: Input of `SIGNATURE` -> LiteRT's description.
        outputs: Output of `SIGNATURE` -> LiteRT's description.
    """

    def __init__(self, network: bytes, threads: int | None) -> None:
        """Open a network.

        Args:
            network: Content of a `.tflite` file whose first graph belongs to `SIGNATURE`.
            threads: None leaves the number to LiteRT.

        Raises:
            ValueError: It is not a network, or has no such signature.
        """
        self._network, self._threads = network, threads
        self._runners: dict[str, Any] = {}
        self._shapes: Mapping[str, Shape] = {}
        self._interpreter = self._open()
        signature = self._interpreter.get_signature_runner(SIGNATURE)
        self.inputs: Mapping[str, Any] = signature.get_input_details()
        self.outputs: Mapping[str, Any] = signature.get_output_details()

    def resize(self, shapes: Mapping[str, Shape]) -> None:
        """Allocate memory for inputs of `SIGNATURE` with these shapes.

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
        """Return the outputs of `SIGNATURE`, as copies, for inputs that match it.

        Raises:
            RuntimeError: There is not enough memory for the examples, or an operator rejects their values.
            ValueError: An input has another type, or a shape that the network does not support.
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
        """Return the outputs of any signature, like a call; each signature keeps its own memory.

        Raises:
            RuntimeError: There is not enough memory for the examples, or an operator rejects their values.
            ValueError: There is no such signature; or an input has another type, or a shape that the network
                does not support.
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
