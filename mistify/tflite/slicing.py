"""Slices of a network: units are removed from its `.tflite`, without TensorFlow.

A unit is a channel or a hidden neuron. Its group is known wherever it appears: in the constants that make or
read it, in the shapes of activations, and in constant shapes of reshapes. Cutting takes milliseconds, and the
slice computes the same as the whole network with the closed units at zero.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from mmap import MADV_DONTNEED, mmap
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from mistify.package.cut_places import ConstantCut, CutAxis, CutPlaces, ShapeElement
from mistify.tflite.constants import (
    constant_content,
    drop_unused_buffers,
    replace_constant,
    scaled_constant,
)
from mistify.tflite.packing import packed
from mistify.tflite.place_checks import check_places

__all__ = ["OpenUnits", "sliced"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.intp]

#: The largest int8, and the smallest value that it represents.
_HIGHEST: Final = 127
_LEAST_STEP: Final = 1e-6


@dataclass(frozen=True)
class OpenUnits:
    """The units of a group that a slice keeps, and how it modulates them.

    Attributes:
        kept: Numbers of the open units, ascending; at least one.
        scale: A positive factor for each open unit, in front of its activation; None for 1.
        shift: A summand for each open unit, in front of its activation; None for 0.
    """

    kept: Indices
    scale: Floats | None = None
    shift: Floats | None = None


def sliced(network: bytes | mmap, places: CutPlaces, groups: Sequence[OpenUnits]) -> bytes:
    """Return the slice of a network that keeps the open units of each group.

    Args:
        network: Content of the whole network's `.tflite`. If it is mapped, a large network takes little more
            memory than its slice.
        places: Where the units of each group are in this file.
        groups: The open units, in the order of `places.units`.

    Raises:
        ValueError: A group has no open unit, or the network lacks a place.
    """
    if empty := [number for number, group in enumerate(groups) if not group.kept.size]:
        raise ValueError(f"group {empty[0]} has no open unit; at least one has to stay open")
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(network, 0))
    check_places(model, places)
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            tensor.shape, tensor.shapeSignature = _writable(tensor.shape), _writable(tensor.shapeSignature)
    closed = [units - group.kept.size for units, group in zip(places.units, groups, strict=True)]
    for constant in places.constants:
        _cut_constant(model, places, constant, groups)
        _release(network)
    for size in places.activations:
        tensor = _tensor(model, size.tensor)
        tensor.shape[size.axis] -= size.per_unit * closed[size.group]
        if tensor.shapeSignature is not None:
            tensor.shapeSignature[size.axis] -= size.per_unit * closed[size.group]
    _cut_shapes(model, places.shapes, closed)
    drop_unused_buffers(model)
    return packed(model)


def _release(network: bytes | mmap) -> None:
    """Release the parts of a mapped file that were read; the system keeps them as long as it has room."""
    if isinstance(network, mmap):
        network.madvise(MADV_DONTNEED)


def _writable(shape: Any) -> Any:
    return None if shape is None else np.array(shape, np.int32)


def _tensor(model: Any, place: tuple[int, int]) -> Any:
    graph, number = place
    return model.subgraphs[graph].tensors[number]


def _cut_constant(model: Any, places: CutPlaces, cut: ConstantCut, groups: Sequence[OpenUnits]) -> None:
    """Cut a constant along its axes, with its scales of integers, and modulate the units that it makes."""
    tensors = [_tensor(model, place) for place in cut.tensors]
    content, quantization = constant_content(model, tensors[0]), tensors[0].quantization
    for axis in cut.axes:
        kept = _entries(axis, places.units[axis.group], groups[axis.group].kept)
        content = np.take(content, kept, axis.axis)
        if (
            quantization is not None
            and _by_entry(quantization)
            and quantization.quantizedDimension == axis.axis
        ):
            quantization.scale = np.asarray(quantization.scale)[kept]
            quantization.zeroPoint = np.asarray(quantization.zeroPoint)[kept]
    group = groups[cut.axes[0].group]
    if cut.modulated and not (group.scale is None and group.shift is None):
        content = _modulated(content, quantization, cut, group)
    for tensor in tensors:
        tensor.quantization = quantization
    replace_constant(model, tensors, content)


def _modulated(content: Array, quantization: Any, cut: ConstantCut, group: OpenUnits) -> Array:
    """Return a kernel or a bias times the scales, and a bias plus the shifts, of the units that it makes."""
    made = cut.axes[0]
    scale, shift = (
        None if of_units is None else np.tile(np.repeat(of_units, made.span), made.repeats)
        for of_units in (group.scale, group.shift)
    )
    if cut.shifted and content.dtype == np.int8:
        return _requantized(content, quantization, scale, shift)
    if scale is not None:
        content = scaled_constant(content, quantization, made.axis, scale)
    return _shifted(content, quantization, shift) if cut.shifted and shift is not None else content


def _entries(axis: CutAxis, units: int, kept: Indices) -> Indices:
    """Return the entries of an axis that belong to open units, ascending."""
    numbers = np.arange(axis.repeats * units * axis.span).reshape(axis.repeats, units, axis.span)
    return numbers[:, kept].ravel()


def _by_entry(quantization: Any) -> bool:
    return quantization.scale is not None and len(quantization.scale) > 1


def _requantized(content: Array, quantization: Any, scale: Floats | None, shift: Floats | None) -> Array:
    """Return an addend after a product, used as its bias: integers with one scale for all units."""
    values = (content.astype(np.float32) - quantization.zeroPoint[0]) * quantization.scale[0]
    values = (values if scale is None else values * scale) + (0 if shift is None else shift)
    step = max(float(np.abs(values).max()), _LEAST_STEP) / _HIGHEST
    quantization.scale, quantization.zeroPoint = np.array([step], np.float32), np.zeros(1, np.int64)
    integers: Array = np.round(values / step).astype(np.int8)
    return integers


def _shifted(content: Array, quantization: Any, shift: Floats) -> Array:
    """Return a bias plus shifts."""
    if np.issubdtype(content.dtype, np.integer):
        steps = np.asarray(quantization.scale, np.float32)
        shift = np.round(shift / steps)
    shifted: Array = (content + shift).astype(content.dtype)
    return shifted


def _cut_shapes(model: Any, elements: Iterable[ShapeElement], closed: Sequence[int]) -> None:
    """Decrease elements of constant shapes."""
    for element in elements:
        tensor = _tensor(model, element.tensor)
        shape = constant_content(model, tensor).copy()
        shape.ravel()[element.index] -= element.per_unit * closed[element.group]
        replace_constant(model, [tensor], shape)
