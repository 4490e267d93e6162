"""Making of templates: what each constant and each size in the file of a network depends on.

The architecture is converted twice, at different widths, with random numbers (marks) in place of weights. No
two groups grow by the same factor, so that the two values of a size tell which groups it follows; and no two
weights have the same marks. What the template gives for the second conversion has to be that conversion to
the bit: otherwise the converter has merged weights, or has chosen other operators, and goes on converting.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Final

import keras
import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from executors.structure import Structure, Widths, fold_batch_norm
from executors.structure.edits.widths import resized
from executors.structure.reading.reader import read_graph
from mistify.config.package.quantization import QuantizationConfig
from mistify.package.cut_places import TensorPlace
from mistify.tflite.combining import read_network, shape_of
from mistify.tflite.constants import constant_content, is_constant
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.conversion.cut_places import separate_constants
from mistify_server.worker.packaging.conversion.pairing import builtin_code, paired
from mistify_server.worker.packaging.conversion.template import (
    ConversionTemplate,
    FoldedWeights,
    FollowingSize,
    HeldWeight,
    WeightKey,
    WrittenConstant,
    encoded,
)
from mistify_server.worker.packaging.conversion.template_sizes import Sizes, UnknownSizeError
from mistify_server.worker.packaging.tflite.isolation import LiteRtError

Array = npt.NDArray[Any]

#: The absolute values of marks: none is 0 or 1, which the converter might drop, and none is rounded to 0.
_SMALLEST: Final = 0.05
_LARGEST: Final = 0.1

#: The types of constants that hold weights.
_TYPES: Final = (schema.TensorType.FLOAT32, schema.TensorType.FLOAT16, schema.TensorType.INT8)

#: Operators whose second input is a kernel.
_LINEAR: Final = (
    schema.BuiltinOperator.CONV_2D,
    schema.BuiltinOperator.DEPTHWISE_CONV_2D,
    schema.BuiltinOperator.FULLY_CONNECTED,
    schema.BuiltinOperator.TRANSPOSE_CONV,
)
_KERNEL: Final = 1

#: The rounding of a scale of integers.
_ROUNDING: Final = 1e-6


class NoTemplateError(Exception):
    """Networks of an architecture need the converter; the message says why."""


def make_template(structure: Structure, quantization: QuantizationConfig) -> ConversionTemplate:
    """Convert an architecture to a template, at a precision without integer activations.

    Args:
        structure: The structure of a network of the architecture, with its weights. It should be one of the
            widest: at some precisions, networks with wider kernels need the converter.

    Raises:
        NoTemplateError: The file does not show what it depends on.
    """
    try:
        sizes = Sizes(structure)
        first, second = (
            _converted(resized(structure, widths), widths, quantization, seed)
            for seed, widths in enumerate((sizes.wide, sizes.narrow))
        )
        whole, other = read_network(first.network), read_network(second.network)
        separate_constants(whole)
        pairs = _pairs(whole, other)
        lengths = tuple(_following_lengths(whole, other, pairs, sizes))
        elements = tuple(_following_elements(whole, other, pairs, sizes))
    except (LiteRtError, UnknownSizeError) as error:
        raise NoTemplateError(str(error)) from error
    constants = tuple(_constants(whole, first.weights, lengths))
    _give_own_buffers(whole, [one.tensors for one in constants], {one.tensor for one in elements})
    least_kernel = quantization.precision.storage.least_kernel
    template = ConversionTemplate(whole, lengths, elements, constants, first.fixed, least_kernel)
    predicted = template.with_weights(second.weights, second.widths)
    if predicted is None or not _same_network(predicted, second.network):
        raise NoTemplateError("the converter merges weights, or stores them in another way at other widths")
    return template


@dataclass(frozen=True, eq=False)
class _Marked:
    """A conversion of a network with marks in place of its weights.

    Attributes:
        widths: The widths of its groups.
        weights: The marks, and the weights without marks, batch norm folded.
        fixed: The weights without marks, such as the statistics of data.
        network: Content of the `.tflite`.
    """

    widths: Widths
    weights: FoldedWeights
    fixed: Mapping[WeightKey, Array]
    network: bytes


def _converted(model: keras.Model, widths: Widths, quantization: QuantizationConfig, seed: int) -> _Marked:
    """Convert a network with marks in place of its weights."""
    marked = fold_batch_norm(model)
    marked.trainable = True
    rng = np.random.default_rng(seed)
    for variable in marked.trainable_variables:
        variable.assign(
            rng.uniform(_SMALLEST, _LARGEST, variable.shape) * rng.choice((-1, 1), variable.shape)
        )
    with_marks = {id(variable) for variable in marked.trainable_variables}
    variables = read_graph(marked).variables
    weights = {name: [variable.numpy() for variable in own] for name, own in variables.items()}
    fixed = {
        (name, at): weights[name][at]
        for name, own in variables.items()
        for at, variable in enumerate(own)
        if id(variable) not in with_marks
    }
    return _Marked(widths, weights, fixed, convert(marked, quantization))


def _pairs(whole: Any, other: Any) -> list[dict[int, int]]:
    """Return the tensors of each graph with those of the same graph of another network.

    Raises:
        NoTemplateError: The networks have different operators.
    """
    try:
        graphs = zip(whole.subgraphs, other.subgraphs, strict=True)
        return [paired(whole, own, other, others) for own, others in graphs]
    except ValueError as error:
        raise NoTemplateError(str(error)) from error


def _following_lengths(
    whole: Any, other: Any, pairs: Sequence[Mapping[int, int]], sizes: Sizes
) -> Iterator[FollowingSize]:
    """Yield the lengths of axes that differ between two networks."""
    for (graph, number), (tensor, others_tensor) in _paired_tensors(whole, other, pairs):
        shapes = [shape_of(one) for one in (tensor, others_tensor)]
        for axis, (length, others_length) in enumerate(_zipped(*shapes)):
            if length != others_length:
                yield FollowingSize((graph, number), axis, sizes.of(length, others_length))


def _following_elements(
    whole: Any, other: Any, pairs: Sequence[Mapping[int, int]], sizes: Sizes
) -> Iterator[FollowingSize]:
    """Yield the elements of constant shapes that differ between two networks."""
    for place, (tensor, others_tensor) in _paired_tensors(whole, other, pairs):
        if tensor.type != schema.TensorType.INT32 or not is_constant(whole, tensor):
            continue
        values = constant_content(whole, tensor).ravel(), constant_content(other, others_tensor).ravel()
        for index, (value, others_value) in enumerate(_zipped(*(map(int, one) for one in values))):
            if value != others_value:
                yield FollowingSize(place, index, sizes.of(value, others_value))


def _paired_tensors(
    whole: Any, other: Any, pairs: Sequence[Mapping[int, int]]
) -> Iterator[tuple[TensorPlace, tuple[Any, Any]]]:
    for graph, numbers in enumerate(pairs):
        for number, others_number in numbers.items():
            tensors = whole.subgraphs[graph].tensors, other.subgraphs[graph].tensors
            yield (graph, number), (tensors[0][number], tensors[1][others_number])


def _zipped(one: Iterable[int], other: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield pairs of sizes.

    Raises:
        UnknownSizeError: There are more of one than of the other.
    """
    try:
        yield from zip(one, other, strict=True)
    except ValueError as error:
        raise UnknownSizeError("a tensor has another number of axes at other widths") from error


def _constants(
    whole: Any, weights: FoldedWeights, lengths: Iterable[FollowingSize]
) -> Iterator[WrittenConstant]:
    """Yield the constants of a network that hold weights, or follow widths.

    Args:
        lengths: The lengths of axes that follow widths.

    Raises:
        NoTemplateError: A constant follows widths, but holds no weight.
    """
    following: dict[TensorPlace, list[str]] = {}
    for one in lengths:
        following.setdefault(one.tensor, []).append(f"{one.index} {one.size}")
    places: dict[Any, list[TensorPlace]] = {}
    for graph, own in enumerate(whole.subgraphs):
        for number, tensor in enumerate(own.tensors):
            place = (graph, number)
            if whole.buffers[tensor.buffer].data is not None:
                key = tensor.buffer, tuple(following.get(place, ()))
                places.setdefault(key, []).append(place)
    for (_, follows), tensors in places.items():
        graph, number = tensors[0]
        tensor = whole.subgraphs[graph].tensors[number]
        held = next(_held(whole, tensor, weights), None)
        if held is not None:
            is_kernel = all(_is_kernel(whole, place) for place in tensors)
            yield WrittenConstant(tuple(tensors), held, is_kernel)
        elif follows:
            yield WrittenConstant(tuple(tensors), _only_number(whole, tensor), is_kernel=False)


def _held(model: Any, tensor: Any, weights: FoldedWeights) -> Iterator[HeldWeight]:
    """Yield the weight that a constant holds, if any."""
    if tensor.type not in _TYPES or not is_constant(model, tensor):
        return
    stored = constant_content(model, tensor)
    if stored.size > 1 and np.ptp(stored) == 0:
        return  # no marks
    for layer, own in weights.items():
        for number, weight in enumerate(own):
            for order in _orders(weight.shape) if weight.size == stored.size else ():
                values = weight.transpose(order).reshape(stored.shape)
                content, quantization = encoded(values, tensor.type, tensor.quantization)
                if np.array_equal(content, stored) and _same_scales(quantization, tensor.quantization):
                    yield HeldWeight(layer, number, order)


def _orders(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield orders of axes that differ in more than the places of axes of length 1."""
    seen = set[tuple[int, ...]]()
    for order in permutations(range(len(shape))):
        moved = tuple(axis for axis in order if shape[axis] > 1)
        if moved not in seen:
            seen.add(moved)
            yield order


def _only_number(model: Any, tensor: Any) -> Array:
    """Return the only number of a constant, in an array.

    Raises:
        NoTemplateError: It has several.
    """
    if tensor.type != schema.TensorType.INT8 and is_constant(model, tensor):
        content = constant_content(model, tensor)
        if np.ptp(content) == 0:
            return content.ravel()[:1].copy()
    raise NoTemplateError("the converter computes constants from weights")


def _is_kernel(model: Any, place: TensorPlace) -> bool:
    """Check whether only linear operators read a constant, as their kernel."""
    graph, number = place
    readers = [
        (builtin_code(model, operator), position)
        for operator in model.subgraphs[graph].operators
        for position, read in enumerate(operator.inputs)
        if read == number
    ]
    return bool(readers) and all(code in _LINEAR and position == _KERNEL for code, position in readers)


def _give_own_buffers(
    model: Any, constants: Sequence[Sequence[TensorPlace]], shapes: set[TensorPlace]
) -> None:
    """Give each constant, and each constant shape, a buffer that nothing else has."""
    written = [*constants, *([place] for place in shapes)]
    places = {place for tensors in written for place in tensors}
    users = Counter(
        tensor.buffer
        for graph, own in enumerate(model.subgraphs)
        for number, tensor in enumerate(own.tensors)
        if (graph, number) not in places
    )
    for tensors in written:
        own = [model.subgraphs[graph].tensors[number] for graph, number in tensors]
        shared = own[0].buffer
        users[shared] += 1
        if users[shared] > 1:
            for tensor in own:
                tensor.buffer = len(model.buffers)
            model.buffers.append(schema.BufferT(data=model.buffers[shared].data))


def _same_network(content: bytes, other_content: bytes) -> bool:
    """Check whether two files have the same operators, shapes and constants."""
    one, other = read_network(content), read_network(other_content)
    tensors = _paired_tensors(one, other, _pairs(one, other))
    return all(_same_tensor(one, pair[0], other, pair[1]) for _, pair in tensors)


def _same_tensor(one: Any, tensor: Any, other: Any, others_tensor: Any) -> bool:
    contents = [
        None if data is None else np.asarray(data, np.uint8).tobytes()
        for data in (one.buffers[tensor.buffer].data, other.buffers[others_tensor.buffer].data)
    ]
    return (
        contents[0] == contents[1]
        and tensor.type == others_tensor.type
        and _listed(tensor.shape) == _listed(others_tensor.shape)
        and _listed(tensor.shapeSignature) == _listed(others_tensor.shapeSignature)
        and _same_scales(tensor.quantization, others_tensor.quantization)
    )


def _listed(sizes: Any) -> list[int] | None:
    return None if sizes is None else list(map(int, sizes))


def _same_scales(one: Any, other: Any) -> bool:
    """Check whether two quantizations have the same scales, up to rounding."""
    scale, others_scale = (None if each is None else each.scale for each in (one, other))
    if scale is None or others_scale is None:
        return scale is others_scale
    return len(scale) == len(others_scale) and bool(np.allclose(scale, others_scale, rtol=_ROUNDING, atol=0))
