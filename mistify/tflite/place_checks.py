"""Checks that a network has the places where its units are to be cut."""

from collections import Counter
from typing import Any

from mistify.package.cut_places import ConstantCut, CutPlaces, TensorPlace
from mistify.tflite.constants import constant_content, is_constant

__all__ = ["check_places"]


def check_places(model: Any, places: CutPlaces) -> None:
    """Check that a network has all places of its units, each with as many entries as there are units.

    Args:
        model: Returned by `read_network`.

    Raises:
        ValueError: It lacks one.
    """
    for cut in places.constants:
        for place in cut.tensors:
            _check_constant(model, place, cut, places)
    _check_once([place for cut in places.constants for place in cut.tensors])
    closable = Counter[tuple[TensorPlace, int]]()
    for size in places.activations:
        closable[size.tensor, size.axis] += size.per_unit * places.units[size.group]
    for (place, axis), most in closable.items():
        shape = _tensor(model, place).shape
        if axis >= len(shape) or shape[axis] < most:
            raise _absent(place, f"axis {axis} of at least {most} entries")
    for element in places.shapes:
        tensor, most = _tensor(model, element.tensor), element.per_unit * places.units[element.group]
        values = constant_content(model, tensor).ravel() if is_constant(model, tensor) else ()
        if element.index >= len(values) or values[element.index] < most:
            raise _absent(element.tensor, f"element {element.index} of at least {most}")


def _check_constant(model: Any, place: TensorPlace, cut: ConstantCut, places: CutPlaces) -> None:
    """Check the axes of a constant, and that it can be modulated if that is said."""
    tensor = _tensor(model, place)
    if not is_constant(model, tensor):
        raise _absent(place, "content")
    for axis in cut.axes:
        entries = axis.repeats * places.units[axis.group] * axis.span
        if axis.axis >= len(tensor.shape) or tensor.shape[axis.axis] != entries:
            raise _absent(place, f"axis {axis.axis} of {entries} entries")
    if cut.shifted and cut.axes[0].axis != len(tensor.shape) - 1:
        raise _absent(place, "a last axis of units for their shifts")


def _check_once(tensors: list[TensorPlace]) -> None:
    """Check that no constant is cut twice."""
    place, times = Counter(tensors).most_common(1)[0] if tensors else ((0, 0), 1)
    if times > 1:
        raise ValueError(f"tensor {place[1]} of graph {place[0]} is to be cut {times} times")


def _tensor(model: Any, place: TensorPlace) -> Any:
    graph, number = place
    if graph >= len(model.subgraphs) or number >= len(model.subgraphs[graph].tensors):
        raise ValueError(f"there is no tensor {number} of graph {graph}")
    return model.subgraphs[graph].tensors[number]


def _absent(place: TensorPlace, what: str) -> ValueError:
    return ValueError(f"tensor {place[1]} of graph {place[0]} has no {what}")
