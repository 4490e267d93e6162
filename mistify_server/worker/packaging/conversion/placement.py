"""Locations of a network's weights in its `.tflite`, so that tuned weights can be written there.

The network is converted with random numbers (marks) in place of the weights. All marks are different, and
none is 0 or 1, which the converter might drop, so each mark can be located. Then the weights overwrite the
marks.
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
from mistify.tflite.stored import stored_constants
from mistify_server.worker.packaging.conversion.converter import convert_function

Array = npt.NDArray[np.float32]
Indices = npt.NDArray[np.intp]
Places = Mapping[str, tuple[WeightPlace, ...]]

#: Offset of a constant's first byte in a network, and its values [n].
StoredArray = tuple[int, Array]

_SEED = 0

#: The largest mark: small enough that the converter's computations do not overflow.
_LARGEST = np.float32(0.1)

#: Number of marks above a tenth of the largest; networks with more weights also need smaller ones.
_USUAL = int(_LARGEST.view(np.uint32) - (_LARGEST / 10).view(np.uint32))

#: The relative error of products of float32 numbers.
_ROUNDING = 1e-6


def convert_placed(model: keras.Model, weights: Mapping[str, keras.Variable]) -> tuple[bytes, Places]:
    """Convert a model without foldable batch norms, and locate some of its weights in the `.tflite`.

    Args:
        model: A model; its weights are unchanged on return.
        weights: Name -> weight to locate.

    Returns:
        The `.tflite`, and the places of each weight. A weight has no place if the converter merges it with
        other weights or constants, or computes a bias from it.
    """
    plain = cache(partial(_convert, model))
    while weights:
        network, places, others = _converted(model, weights)
        if len(places) < len(weights):
            # Merged constants contain random numbers.
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
) -> tuple[bytes, Places, Sequence[StoredArray]]:
    """Return the `.tflite`, the places of all located weights, and all other constants."""
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


def _absent(constants: Sequence[StoredArray], plain: Callable[[], bytes]) -> set[int]:
    """Return the offsets of the constants that are missing without marks, and therefore contain marks."""
    if not constants:
        return set()
    known = [stored for _, stored in _constants(plain())]
    return {offset for offset, stored in constants if not any(np.array_equal(stored, own) for own in known)}


def _kept_apart(places: Places, network: bytes, random: Collection[int]) -> list[str]:
    """Return the weights that no operator reads together with constants that contain marks, such as a bias.

    Such constants were computed from the weights of the same operator, or, if it has none, from any weights.
    """
    beside = set[int]().union(*(read for read in _reads(network) if not read.isdisjoint(random)))
    kept = [name for name, at in places.items() if beside.isdisjoint(place.offset for place in at)]
    return kept if len(kept) < len(places) else []


def _marks(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return random numbers in the shapes of weights, all with different absolute values."""
    rng = np.random.default_rng(_SEED)
    starts = np.cumsum([0, *(array.size for array in weights.values())])
    count = int(starts[-1])
    # Floats are ordered like their bits as integers: draw one from each interval of these.
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


def _located(network: bytes, marks: Mapping[str, Array]) -> tuple[Places, Sequence[StoredArray]]:
    """Return the places of all located weights, and all other constants."""
    names, arrays = list(marks), list(marks.values())
    ends = np.cumsum([array.size for array in arrays])
    values = np.concatenate([array.ravel() for array in arrays])
    order = np.argsort(values)
    places: dict[str, list[WeightPlace]] = {}
    unmatched: list[StoredArray] = []
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
    matched = {place.offset for at in places.values() for place in at}
    others = [(offset, stored) for offset, stored in unmatched if offset not in matched]
    return {name: tuple(places[name]) for name in names if places[name]}, others


def _scaled(weight: Array, constants: Sequence[StoredArray]) -> Iterator[WeightPlace]:
    """Yield the places of a scaled weight: the kernel may include the scaling of its layer's input."""
    for offset, stored in constants:
        for axes in permutations(range(weight.ndim)) if weight.size == stored.size > 1 else ():
            ratios = stored / weight.transpose(axes).ravel()
            if np.ptp(ratios) <= _ROUNDING * abs(ratios[0]) > 0:
                start = (0,) * weight.ndim
                factor = float(np.median(ratios))
                yield WeightPlace(offset=offset, start=start, stop=weight.shape, axes=axes, factor=factor)
                break


def _constants(network: bytes) -> Iterator[StoredArray]:
    """Yield the float32 constants of a network."""
    model = schema.Model.GetRootAs(network, 0)
    floats = {
        stored.offset: stored.content
        for (graph, tensor), stored in stored_constants(network).items()
        if model.Subgraphs(graph).Tensors(tensor).Type() == schema.TensorType.FLOAT32
    }
    for offset, content in sorted(floats.items()):
        yield offset, np.frombuffer(content, "<f4")


def _reads(network: bytes) -> Iterator[set[int]]:
    """Yield the offsets of the constants that each operator of a network reads."""
    model, stored = schema.Model.GetRootAs(network, 0), stored_constants(network)
    for number, graph in enumerate(map(model.Subgraphs, range(model.SubgraphsLength()))):
        for operator in map(graph.Operators, range(graph.OperatorsLength())):
            read = ((number, operator.Inputs(at)) for at in range(operator.InputsLength()))
            yield {stored[place].offset for place in read if place in stored}


def _place(stored: Array, at: Indices, weight: Array, offset: int) -> WeightPlace | None:
    """Return the place of a weight, or a part of it, in a constant; None if the part is not a box.

    Args:
        stored: The constant [n].
        at: Index of each of its values in the flattened weight [n].
        offset: Position of the constant in the file, in bytes.
    """
    corners: Sequence[Indices] = np.unravel_index(at, weight.shape) if weight.ndim else ()
    start = tuple(int(places.min()) for places in corners)
    stop = tuple(int(places.max()) + 1 for places in corners)
    box = weight[tuple(map(slice, start, stop))]
    orders = permutations(range(weight.ndim)) if box.size == stored.size else ()
    axes = next((axes for axes in orders if np.array_equal(box.transpose(axes).ravel(), stored)), None)
    return None if axes is None else WeightPlace(offset=offset, start=start, stop=stop, axes=axes)
