"""A network that shows the statistics of its folded batch norms, which adaptation without labels reads.

Behind each linear operator with a folded batch norm, before its activation, the observed network measures the
mean and the mean square of every channel, and applies a scale and a shift that are inputs. It therefore
computes what the network would after any change of its statistics, without being converted or rewritten.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from mistify.litert import open_interpreter
from mistify.package.manifest import SIGNATURE
from mistify.tflite.combining import CombinedNetwork, names_of, read_network

__all__ = ["Observation", "Observer", "observed_network"]

Floats = npt.NDArray[np.float32]
Array = npt.NDArray[Any]

_MEAN, _SQUARE, _SCALE, _SHIFT = "mean_{}", "square_{}", "scale_{}", "shift_{}"

_Builtin: Final = schema.BuiltinOperator
_Options: Final = schema.BuiltinOptions


@dataclass(frozen=True)
class Observation:
    """The results of one example.

    Attributes:
        outputs: Output -> [1, ...].
        means: The mean of each channel behind each observed operator, over all positions [channels].
        squares: The mean square of each channel.
    """

    outputs: Mapping[str, Array]
    means: Sequence[Floats]
    squares: Sequence[Floats]


def observed_network(network: bytes, signature: str, operators: Sequence[int]) -> bytes:
    """Return a network with the graph of one signature, whose operators are observed.

    Args:
        network: Content of a `.tflite` file.
        signature: A signature of it.
        operators: Numbers of linear operators in its graph.

    Raises:
        ValueError: An operator of the graph is bound to its file.
    """
    model, combined = read_network(network), CombinedNetwork()
    (chosen,) = (one for one in model.signatureDefs if one.signatureKey.decode() == signature)
    tensors, listed = combined.parts_of(model, model.subgraphs[chosen.subgraphIndex])
    graph = _ObservedGraph(combined, tensors)
    numbers = {operator: place for place, operator in enumerate(operators)}
    changed: list[Any] = []
    for number, operator in enumerate(listed):
        changed += graph.observed(operator, numbers[number]) if number in numbers else [operator]
    inputs = names_of(chosen.inputs) | graph.inputs
    combined.add(SIGNATURE, tensors, changed, inputs, names_of(chosen.outputs) | graph.outputs)
    return combined.packed()


class _ObservedGraph:
    """The graph that is being changed.

    Attributes:
        inputs: Name -> number of each new input.
        outputs: Name -> number of each new output.
    """

    def __init__(self, combined: CombinedNetwork, tensors: list[Any]) -> None:
        self._combined, self._tensors = combined, tensors
        self.inputs: dict[str, int] = {}
        self.outputs: dict[str, int] = {}

    def observed(self, operator: Any, place: int) -> Iterator[Any]:
        """Yield a linear operator without its activation, its observation, and then the activation."""
        output = int(operator.outputs[0])
        activation = operator.builtinOptions.fusedActivationFunction
        linear, squares, scaled = (self._like(output) for _ in range(3))
        channels = int(self._tensors[output].shape[-1])
        mean, square, scale, shift = (self._vector(channels) for _ in range(4))
        yield _with_output(operator, linear)
        yield self._binary(_Builtin.MUL, schema.MulOptionsT(), [linear, linear], squares)
        yield self._mean(squares, square)
        yield self._mean(linear, mean)
        yield self._binary(_Builtin.MUL, schema.MulOptionsT(), [linear, scale], scaled)
        shifted = schema.AddOptionsT(fusedActivationFunction=activation)
        yield self._binary(_Builtin.ADD, shifted, [scaled, shift], output)
        self.inputs |= {_SCALE.format(place): scale, _SHIFT.format(place): shift}
        self.outputs |= {_MEAN.format(place): mean, _SQUARE.format(place): square}

    def _like(self, number: int) -> int:
        """Add a tensor like another one, and return its number."""
        return self._added(copy(self._tensors[number]))

    def _vector(self, channels: int) -> int:
        tensor = schema.TensorT(
            shape=[channels], type=schema.TensorType.FLOAT32, name=b"channels", hasRank=True
        )
        return self._added(tensor)

    def _added(self, tensor: Any) -> int:
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    def _binary(self, builtin: int, options: Any, inputs: list[int], output: int) -> Any:
        kind = _Options.AddOptions if builtin == _Builtin.ADD else _Options.MulOptions
        return self._operator(builtin, kind, options, inputs, output)

    def _mean(self, number: int, output: int) -> Any:
        """Return the operator that averages a tensor over all axes but the last."""
        axes = np.arange(len(self._tensors[number].shape) - 1, dtype=np.int32)
        inputs = [number, self._added(self._combined.constant(axes))]
        return self._operator(
            _Builtin.MEAN, _Options.ReducerOptions, schema.ReducerOptionsT(keepDims=False), inputs, output
        )

    def _operator(self, builtin: int, kind: int, options: Any, inputs: list[int], output: int) -> Any:
        return schema.OperatorT(
            opcodeIndex=self._combined.code(builtin),
            inputs=inputs,
            outputs=[output],
            builtinOptionsType=kind,
            builtinOptions=options,
        )


def _with_output(operator: Any, output: int) -> Any:
    """Return an operator that writes another tensor, without an activation."""
    changed = copy(operator)
    changed.builtinOptions = copy(operator.builtinOptions)
    changed.builtinOptions.fusedActivationFunction = schema.ActivationFunctionType.NONE
    changed.outputs = [output]
    return changed


class Observer:
    """An observed network in LiteRT, for one thread at a time.

    Args:
        network: Returned by `observed_network`.
        norms: The number of observed operators.
    """

    def __init__(self, network: bytes, norms: int, threads: int = 1) -> None:
        self._norms = norms
        self._run = open_interpreter(network, threads).get_signature_runner(SIGNATURE)

    def __call__(
        self, inputs: Mapping[str, Array], scales: Sequence[Floats], shifts: Sequence[Floats]
    ) -> Observation:
        """Run one example.

        Args:
            inputs: Input -> [1, ...].
            scales: Factor of each channel of each observed operator; 1 for the network as it is.
            shifts: Summand of each channel; 0 for the network as it is.
        """
        numbers = range(self._norms)
        outputs: dict[str, Array] = self._run(
            **inputs,
            **{_SCALE.format(number): scales[number] for number in numbers},
            **{_SHIFT.format(number): shifts[number] for number in numbers},
        )
        means, squares = (
            [outputs.pop(name.format(number)) for number in numbers] for name in (_MEAN, _SQUARE)
        )
        return Observation(outputs, means, squares)
