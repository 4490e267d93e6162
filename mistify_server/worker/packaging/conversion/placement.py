"""The places of a network's weights in its `.tflite`, so that tuned weights can be written there.

The network is converted with random numbers (marks) in place of the weights. All marks differ, and none is 0
or 1, which the converter might drop, so that each can be located; then the weights are written over them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import permutations

import keras
import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from executors.structure.exporting import NamedFunction, constant
from mistify.config.package.quantization import QuantizationConfig
from mistify.package.training import WeightPlace
from mistify_server.worker.packaging.conversion.converter import convert_function

Array = npt.NDArray[np.float32]
Indices = npt.NDArray[np.intp]
Places = Mapping[str, tuple[WeightPlace, ...]]

#: The offset of its first byte in a network, and its values [n].
StoredConstant = tuple[int, Array]

_SEED = 0

#: The largest mark: small enough for nothing to overflow where the converter computes with it.
_LARGEST = np.float32(0.1)

#: How many marks there are above a tenth of that; networks with more weights have smaller ones as well.
_USUAL = int(_LARGEST.view(np.uint32) - (_LARGEST / 10).view(np.uint32))

#: The relative error of products of float32 numbers.
_ROUNDING = 1e-6


def convert_placed(model: keras.Model, weights: Mapping[str, keras.Variable]) -> tuple[bytes, Places]:
    """Convert a model without foldable batch norms, and locate some of its weights in the `.tflite`.

    Args:
        model: A model; its weights are unchanged when this returns.
        weights: Name -> weight to locate.

    Returns:
        The `.tflite`, and the places of each weight. A weight that the converter merges with others, or with
        constants, has no place, and neither has a kernel from which the converter computes a bias.
    """
    plain = cache(partial(_convert, model))
    while weights:
        network, places, others = _converted(model, weights)
        if len(places) < len(weights):
            # What was merged has random numbers in it.
            kept = [name for name, at in places.items() if all(place.factor == 1 for place in at)]
        elif random := _absent(others, plain):
            kept = _kept_apart(places, network, random)
        else:
            return network, places
        weights = {name: weights[name] for name in kept}
    return plain(), {}


def _convert(model: keras.Model) -> bytes:
    return convert_function(NamedFunction.like(model, constant(model)), QuantizationConfig())


def _converted(
    model: keras.Model, weights: Mapping[str, keras.Variable]
) -> tuple[bytes, Places, Sequence[StoredConstant]]:
    """Return the `.tflite`, the places of those weights that have any, and all other constants."""
    kept = {name: variable.numpy() for name, variable in weights.items()}
    marks = _marks(kept)
    try:
        _assign(weights, marks)
        marked = _convert(model)
    finally:
        _assign(weights, kept)
    places, others = _located(marked, marks)
    network = bytearray(marked)
    for name, at in places.items():
        for place in at:
            place.put(kept[name], network)
    return bytes(network), places, others


def _absent(constants: Sequence[StoredConstant], plain: Callable[[], bytes]) -> set[int]:
    """Return the offsets of the constants that a network without marks has not: marks are in these."""
    if not constants:
        return set()
    known = [stored for _, stored in _constants(plain())]
    return {offset for offset, stored in constants if not any(np.array_equal(stored, own) for own in known)}


def _kept_apart(places: Places, network: bytes, random: Collection[int]) -> list[str]:
    """Return the weights that no operator reads together with constants, such as a bias, that have marks.

    Such constants were computed from the weights beside them; where there are no weights beside them, from
    any.
    """
    beside = set[int]().union(*(read for read in _reads(network) if not read.isdisjoint(random)))
    kept = [name for name, at in places.items() if beside.isdisjoint(place.offset for place in at)]
    return kept if len(kept) < len(places) else []


def _marks(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return random numbers in the shapes of weights, no two of the same absolute value."""
    rng = np.random.default_rng(_SEED)
    starts = np.cumsum([0, *(array.size for array in weights.values())])
    count = int(starts[-1])
    # Floats are ordered as their bits are as integers: one is taken from each stretch of them.
    stretch = max(1, _USUAL // max(1, count))
    below = stretch * rng.permutation(count) + rng.integers(stretch, size=count)
    sizes = (int(_LARGEST.view(np.uint32)) - below).astype(np.uint32).view(np.float32)
    parts = np.split(sizes * rng.choice(np.array([-1, 1], np.float32), count), starts[1:-1])
    return {
        name: part.reshape(array.shape) for (name, array), part in zip(weights.items(), parts, strict=False)
    }


def _assign(weights: Mapping[str, keras.Variable], values: Mapping[str, Array]) -> None:
    for name, variable in weights.items():
        variable.assign(values[name])


def _located(network: bytes, marks: Mapping[str, Array]) -> tuple[Places, Sequence[StoredConstant]]:
    """Return the places of those weights that have any, and all other constants."""
    names, arrays = list(marks), list(marks.values())
    ends = np.cumsum([array.size for array in arrays])
    values = np.concatenate([array.ravel() for array in arrays])
    order = np.argsort(values)
    places: dict[str, list[WeightPlace]] = {}
    unmatched: list[StoredConstant] = []
    for offset, stored in _constants(network):
        at: Indices = order[np.searchsorted(values, stored, sorter=order).clip(max=len(order) - 1)]
        number = int(np.searchsorted(ends, at[0], side="right"))
        within = at - ends[number] + arrays[number].size
        if np.array_equal(values[at], stored) and within.min() >= 0 and within.max() < arrays[number].size:
            place = _place(stored, within, arrays[number], offset)
            places.setdefault(names[number], []).extend([place] if place else [])
        else:
            unmatched.append((offset, stored))
    for name in names:
        places.setdefault(name, []).extend(_scaled(marks[name], unmatched))
    found = {place.offset for at in places.values() for place in at}
    others = [(offset, stored) for offset, stored in unmatched if offset not in found]
    return {name: tuple(places[name]) for name in names if places[name]}, others


def _scaled(weight: Array, constants: Sequence[StoredConstant]) -> Iterator[WeightPlace]:
    """Yield the places of a weight times a number: the kernel includes the scaling of its layer's input."""
    for offset, stored in constants:
        for axes in permutations(range(weight.ndim)) if weight.size == stored.size > 1 else ():
            ratios = stored / weight.transpose(axes).ravel()
            if np.ptp(ratios) <= _ROUNDING * abs(ratios[0]) > 0:
                start = (0,) * weight.ndim
                factor = float(np.median(ratios))
                yield WeightPlace(offset=offset, start=start, stop=weight.shape, axes=axes, factor=factor)
                break


def _constants(network: bytes) -> Iterator[StoredConstant]:
    """Yield the float32 constants of a network."""
    model = schema.Model.GetRootAs(network, 0)
    graphs = [model.Subgraphs(at) for at in range(model.SubgraphsLength())]
    tensors = (graph.Tensors(at) for graph in graphs for at in range(graph.TensorsLength()))
    floats = {tensor.Buffer() for tensor in tensors if tensor.Type() == schema.TensorType.FLOAT32}
    start = _address(np.frombuffer(network, np.uint8))
    for buffer in map(model.Buffers, sorted(floats)):
        if buffer.DataLength():
            content = buffer.DataAsNumpy()
            yield _address(content) - start, content.view("<f4")


def _reads(network: bytes) -> Iterator[set[int]]:
    """Yield the offsets of the constants that each operator of a network reads."""
    model = schema.Model.GetRootAs(network, 0)
    start = _address(np.frombuffer(network, np.uint8))
    for graph in map(model.Subgraphs, range(model.SubgraphsLength())):
        for operator in map(graph.Operators, range(graph.OperatorsLength())):
            read = (operator.Inputs(at) for at in range(operator.InputsLength()))
            buffers = [model.Buffers(graph.Tensors(tensor).Buffer()) for tensor in read if tensor >= 0]
            yield {_address(one.DataAsNumpy()) - start for one in buffers if one.DataLength()}


def _address(array: npt.NDArray[np.uint8]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _place(stored: Array, at: Indices, weight: Array, offset: int) -> WeightPlace | None:
    """Return the place of a weight, or a part of it, that a constant holds; None if the part is no box.

    Args:
        stored: The constant [n].
        at: The index of each of its values in the flat weight [n].
        offset: Position of the constant in the file, in bytes.
    """
    corners: Sequence[Indices] = np.unravel_index(at, weight.shape)
    start = tuple(int(places.min()) for places in corners)
    stop = tuple(int(places.max()) + 1 for places in corners)
    box = weight[tuple(map(slice, start, stop))]
    orders = permutations(range(weight.ndim)) if box.size == stored.size else ()
    axes = next((axes for axes in orders if np.array_equal(box.transpose(axes).ravel(), stored)), None)
    return None if axes is None else WeightPlace(offset=offset, start=start, stop=stop, axes=axes)
