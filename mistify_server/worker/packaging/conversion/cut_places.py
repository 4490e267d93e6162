"""Finds the units of channel groups in a converted network, so that devices can cut slices (NN-Factory 3.4).

The network is converted a second time with some units of each group cut. Both files have the same operators,
and units are wherever a shape of the second is smaller. No two groups lose the same fraction of their units:
the fraction that an axis loses tells the group.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from fractions import Fraction
from typing import Any, Final

import keras
import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from executors.structure import (
    ChannelGroup,
    Role,
    Slot,
    Structure,
    model_of,
    narrow,
)
from executors.structure.edits.outputs import narrow_outputs
from executors.structure.signature import output_names
from mistify.package.cut_places import (
    ActivationSize,
    ConstantCut,
    CutAxis,
    CutPlaces,
    ShapeElement,
    TensorPlace,
)
from mistify.tflite.combining import read_network
from mistify.tflite.packing import packed
from mistify_server.worker.packaging.conversion.pairing import builtin_code, paired

Ids = npt.NDArray[np.int64]

#: Fraction of the units that a group has lost -> the number of the group.
_Fractions = Mapping[Fraction, int]

#: Axes that have become shorter, each with its group and the entries for each unit of it.
_Shrunk = Iterable[tuple[int, int, int]]

#: Operators whose kernel has one entry along its first axis for each unit that they make.
_MAKERS: Final = (schema.BuiltinOperator.CONV_2D, schema.BuiltinOperator.FULLY_CONNECTED)

_KERNEL, _BIAS = 1, 2


def find_cut_places(
    network: bytes,
    structure: Structure,
    groups: Sequence[str],
    convert: Callable[[keras.Model], bytes],
    classes: int = 0,
) -> tuple[bytes, CutPlaces]:
    """Return a converted network prepared for cuts, and where the units of groups are in it.

    The converter gives operators that read equal constants one tensor. In the result, each operator has
    tensors of its own, as slices may need different ones; they still share their buffer.

    Args:
        network: Content of the `.tflite` of the structure's model, batch norm folded.
        structure: The structure that the model has with batch norm folded.
        groups: Names of channel groups, each of at least two units, in the order of the result's.
        convert: Converts a narrower model exactly as the network was converted.
        classes: Number of classes of the network's only output, which become one more group, the last; 0 for
            an output that stays as it is.

    Raises:
        ValueError: The converter has merged the units of a group with others, so that it cannot be cut.
    """
    chosen = [structure.groups[name] for name in groups]
    gated = len(chosen)
    if classes:
        chosen.append(_group_of_classes(classes))
    whole = read_network(network)
    separate_constants(whole)
    network = packed(whole)
    whole = read_network(network)
    finder = _PlaceFinder(whole, chosen)
    for cut in _rounds([group.size for group in chosen[:gated]]):
        keep = {chosen[number].name: np.arange(chosen[number].size) >= count for number, count in cut.items()}
        fractions = {Fraction(count, chosen[number].size): number for number, count in cut.items()}
        finder.compare(read_network(convert(narrow(structure, keep))), fractions)
    if classes:
        model = model_of(structure.graph)
        (output,) = output_names(model)
        fewer = convert(narrow_outputs(model, output, range(1, classes)))
        finder.compare(read_network(fewer), {Fraction(1, classes): gated})
    return network, finder.places()


def _group_of_classes(count: int) -> ChannelGroup:
    """Return the classes of an output as a group: a layer makes one value for each."""
    slot = Slot(layer="classes", weight=0, axis=-1, role=Role.MAKES, positions=np.arange(count)[:, None])
    return ChannelGroup(name="classes", size=count, slots=(slot,))


def separate_constants(network: Any) -> None:
    """Give each operator separate tensors for its constants."""
    for graph in network.subgraphs:
        used = set[int]()
        for operator in graph.operators:
            operator.inputs = np.array(operator.inputs, np.int32)
            for position, number in enumerate(operator.inputs):
                if number < 0 or network.buffers[graph.tensors[number].buffer].data is None:
                    continue
                if number in used:
                    operator.inputs[position] = len(graph.tensors)
                    graph.tensors.append(copy(graph.tensors[number]))
                used.add(int(number))


def _rounds(sizes: Sequence[int]) -> Iterator[Mapping[int, int]]:
    """Yield for each conversion how many units to cut, by the numbers of groups.

    No two groups of a conversion lose the same fraction; each group is cut in one of them.
    """
    left = sorted(range(len(sizes)), key=lambda number: sizes[number])
    while left:
        cut: dict[int, int] = {}
        taken: set[Fraction] = set()
        for number in left:
            free = (count for count in range(1, sizes[number]) if Fraction(count, sizes[number]) not in taken)
            if count := next(free, 0):
                cut[number] = count
                taken.add(Fraction(count, sizes[number]))
        if not cut:
            raise ValueError("a group of one unit cannot be cut")
        yield cut
        left = [number for number in left if number not in cut]


class _PlaceFinder:
    """The places that comparisons with narrower networks have found."""

    def __init__(self, whole: Any, groups: Sequence[ChannelGroup]) -> None:
        self._whole, self._groups = whole, groups
        self._constants: dict[TensorPlace, list[CutAxis]] = {}
        self._activations: list[ActivationSize] = []
        self._shapes: list[ShapeElement] = []

    def compare(self, narrower: Any, fractions: _Fractions) -> None:
        """Add the places of the groups that a narrower network has fewer units of.

        Args:
            narrower: The network read from its file.
            fractions: Fraction of its units that each group has lost -> the group's number.
        """
        for graph, (own, other) in enumerate(zip(self._whole.subgraphs, narrower.subgraphs, strict=True)):
            for number, others_number in paired(self._whole, own, narrower, other).items():
                tensor, cut = own.tensors[number], other.tensors[others_number]
                shrunk = self._shrunk(tensor.shape, cut.shape, fractions)
                if self._whole.buffers[tensor.buffer].data is None:
                    self._add_activation((graph, number), shrunk)
                elif _is_shape(tensor):
                    content, cut_content = _integers(self._whole, tensor), _integers(narrower, cut)
                    self._add_shape((graph, number), self._shrunk(content, cut_content, fractions))
                else:
                    self._add_constant((graph, number), shrunk)

    def _add_activation(self, tensor: TensorPlace, shrunk: _Shrunk) -> None:
        for axis, group, per_unit in shrunk:
            size = ActivationSize(tensor=tensor, axis=axis, group=group, per_unit=per_unit)
            self._activations.append(size)

    def _add_shape(self, tensor: TensorPlace, shrunk: _Shrunk) -> None:
        for index, group, per_unit in shrunk:
            element = ShapeElement(tensor=tensor, index=index, group=group, per_unit=per_unit)
            self._shapes.append(element)

    def _add_constant(self, tensor: TensorPlace, shrunk: _Shrunk) -> None:
        for axis, group, per_unit in shrunk:
            entry = _cut_axis(axis, group, per_unit, self._groups[group])
            self._constants.setdefault(tensor, []).append(entry)

    def places(self) -> CutPlaces:
        """Return all places; a constant that several graphs hold is listed once."""
        kernels, biases = self._made_by()
        tensors: dict[Any, list[TensorPlace]] = {}
        for (graph, number), axes in self._constants.items():
            buffer = self._whole.subgraphs[graph].tensors[number].buffer
            shifted = (graph, number) in biases
            modulated = shifted or (graph, number) in kernels
            key = buffer, tuple(sorted(axes, key=lambda axis: axis.axis)), modulated, shifted
            tensors.setdefault(key, []).append((graph, number))
        return CutPlaces(
            units=tuple(group.size for group in self._groups),
            constants=tuple(
                ConstantCut(tensors=tuple(places), axes=axes, modulated=modulated, shifted=shifted)
                for (_, axes, modulated, shifted), places in tensors.items()
            ),
            activations=tuple(self._activations),
            shapes=tuple(self._shapes),
        )

    def _shrunk(self, shape: Any, cut: Any, fractions: _Fractions) -> Iterator[tuple[int, int, int]]:
        """Yield each axis that has become shorter, with the group and the entries for each of its units."""
        for axis, (length, left) in enumerate(zip(shape, cut, strict=True)):
            if length == left:
                continue
            group = fractions.get(Fraction(int(length - left), int(length)))
            if group is None or length % self._groups[group].size:
                raise ValueError("the converter has merged units of several groups")
            yield axis, group, int(length) // self._groups[group].size

    def _made_by(self) -> tuple[set[TensorPlace], set[TensorPlace]]:
        """Return the kernels, and the biases, by which operators make the units of groups."""
        kernels, biases = set[TensorPlace](), set[TensorPlace]()
        for graph, own in enumerate(self._whole.subgraphs):
            stored = _stored(self._whole, own)
            for operator in own.operators:
                if builtin_code(self._whole, operator) not in _MAKERS:
                    continue
                kernel = stored.get(int(operator.inputs[_KERNEL]), int(operator.inputs[_KERNEL]))
                if any(axis.axis == 0 for axis in self._constants.get((graph, kernel), ())):
                    bias = _bias_of(self._whole, own, operator)
                    kernels.add((graph, kernel))
                    biases.add((graph, stored.get(bias, bias)))
        return kernels, biases


def _bias_of(network: Any, graph: Any, maker: Any) -> int:
    """Return the bias of an operator, or the constant that is added behind it instead; -1 for none."""
    if len(maker.inputs) > _BIAS and maker.inputs[_BIAS] >= 0:
        return int(maker.inputs[_BIAS])
    made = int(maker.outputs[0])
    for operator in graph.operators:
        if made in operator.inputs:
            match builtin_code(network, operator):
                case schema.BuiltinOperator.RESHAPE:  # behind a product of more than two dimensions
                    made = int(operator.outputs[0])
                case schema.BuiltinOperator.ADD:
                    return next(int(number) for number in operator.inputs if number != made)
                case _:
                    return -1
    return -1


def _stored(network: Any, graph: Any) -> dict[int, int]:
    """Return the constants that are stored in another precision, by the tensors that they become."""
    return {
        int(operator.outputs[0]): int(operator.inputs[0])
        for operator in graph.operators
        if builtin_code(network, operator) == schema.BuiltinOperator.DEQUANTIZE
    }


def _is_shape(tensor: Any) -> bool:
    """Return whether a constant can be a shape, or a part of one, rather than a bias of integers."""
    quantized = tensor.quantization is not None and tensor.quantization.scale is not None
    return tensor.type == schema.TensorType.INT32 and not quantized


def _integers(network: Any, tensor: Any) -> npt.NDArray[np.int32]:
    return np.asarray(network.buffers[tensor.buffer].data, np.uint8).view(np.int32)


def _cut_axis(axis: int, group: int, per_unit: int, units: ChannelGroup) -> CutAxis:
    """Return how the entries of an axis are divided among the units of a group.

    Raises:
        ValueError: Entries of a unit are neither adjacent nor at regular distances.
    """
    divisions = {
        (repeats, span)
        for slot in units.slots
        if slot.positions.shape[1] == per_unit
        for span in range(1, per_unit + 1)
        for repeats in [per_unit // span]
        if np.array_equal(np.sort(slot.positions, axis=1), _positions(repeats, units.size, span))
    }
    if len(divisions) != 1:
        raise ValueError(f"units of {units.name} are not evenly spread over the weights of a layer")
    ((repeats, span),) = divisions
    return CutAxis(axis=axis, group=group, repeats=repeats, span=span)


def _positions(repeats: int, units: int, span: int) -> Ids:
    """Return the entries [units, repeats * span] of an axis that each unit has."""
    entries = np.arange(repeats * units * span).reshape(repeats, units, span)
    return entries.transpose(1, 0, 2).reshape(units, -1)
