"""Resizing of images."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil, floor
from typing import Any, Final

import keras
import numpy as np

from executors.sources.onnx.batch import Array, for_probe
from executors.sources.onnx.builder import Builder
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.registry import Argument, Node, operator, optional, tensor
from executors.sources.onnx.values import Value

layers = keras.layers

#: The region of an axis that is read as a whole.
_WHOLE: Final = (0.0, 1.0)

#: Distance from which positions do not count.
_REACH: Final = 2

#: Most positions of an axis of the result, whose weights are computed one by one.
_MOST_POSITIONS: Final = 2**14

_ROUNDED = {
    "round_prefer_floor": lambda place: ceil(place - 0.5),
    "round_prefer_ceil": lambda place: floor(place + 0.5),
    "floor": floor,
    "ceil": ceil,
}


@operator("Resize", "Upsample")
def resize(builder: Builder, node: Node, data: Argument, *options: Argument) -> Value:
    """Resize height and width: by a layer if Keras has an equal one, and by two matrices otherwise."""
    value = builder.channels_last(tensor(data))
    if value.rank != 4:
        raise UnsupportedNodeError(f"resizes a tensor of {value.rank} axes; expected an image with 4")
    old = (value.size(2), value.size(3))
    new, scales = _sizes(node, value, options)
    regions = _regions(node, value, options)
    if new == old and regions is None:
        return value
    if max(new) > _MOST_POSITIONS:
        raise UnsupportedNodeError(
            f"makes images of {new[0]:,} x {new[1]:,}; expected axes of at most {_MOST_POSITIONS:,}"
        )
    places = [
        _places(node, *each, None if regions is None else regions[axis])
        for axis, each in enumerate(zip(old, new, scales, strict=True))
    ]
    matrices = [_matrix(node, *each) for each in zip(places, old, scales, strict=True)]
    layer = _layer(builder, node, old, new, matrices)
    if layer is not None:
        return value.with_tensor(layer(value.tensor), not_negative=value.not_negative)
    result = _by_matrices(builder, value.tensor, new, matrices)
    outside, filling = _outside(matrices), float(node.get("extrapolation_value", 0.0))
    if filling and regions is not None and outside.any():
        result = keras.ops.add(result, (filling * outside).astype(np.float32)[None, ..., None])
    return value.with_tensor(result)


def _regions(node: Node, value: Value, options: tuple[Argument, ...]) -> list[tuple[float, float]] | None:
    """Return the first and last position of height and width that are read, as shares; None for all.

    Raises:
        UnsupportedNodeError: There is no region, or it crops the channels or the batch.
    """
    if node.get("coordinate_transformation_mode") != "tf_crop_and_resize":
        return None
    region = optional(for_probe(options[0], 0), "region")
    axes = [axis % value.rank for axis in node.get("axes", range(value.rank))]
    if region is None or region.size != 2 * len(axes):
        raise UnsupportedNodeError("crops to no region")
    bounds = dict(zip(axes, zip(*region.reshape(2, -1).tolist(), strict=True), strict=True))
    if any(bounds.get(axis, _WHOLE) != _WHOLE for axis in (0, 1)):
        raise UnsupportedNodeError("crops the channels or the batch")
    return [bounds.get(axis, _WHOLE) for axis in (2, 3)]


def _outside(matrices: Sequence[Array]) -> Array:
    """Return which positions [height, width] read nothing."""
    rows, columns = (np.abs(matrix).max(-1) == 0 for matrix in matrices)
    result: Array = rows[:, None] | columns
    return result


def _sizes(node: Node, value: Value, options: tuple[Argument, ...]) -> tuple[tuple[int, int], list[float]]:
    """Return the new height and width, and the scales by which positions are computed."""
    inputs = [optional(for_probe(option, 0), "size") for option in options]
    if node.operator == "Upsample" or node.version < 11:
        scales, sizes = (inputs[0] if inputs else np.asarray(node.get("scales"))), None
    else:
        scales, sizes = (inputs[index] if index < len(inputs) else None for index in (1, 2))
    axes = [axis % value.rank for axis in node.get("axes", range(value.rank))]
    if sizes is not None:
        factors = _factors(node, value, dict(zip(axes, map(int, sizes), strict=True)))
        return (round(factors[0] * value.size(2)), round(factors[1] * value.size(3))), factors
    if scales is None:
        raise UnsupportedNodeError("has neither sizes nor scales")
    by_axis = dict(zip(axes, map(float, scales), strict=True))
    if any(by_axis.get(axis, 1) != 1 for axis in (0, 1)):
        raise UnsupportedNodeError("resizes the channels or the batch")
    factors = [by_axis.get(axis, 1.0) for axis in (2, 3)]
    exact = [value.size(2) * factors[0], value.size(3) * factors[1]]
    aligned = node.get("coordinate_transformation_mode") == "align_corners"
    if aligned and any(size != floor(size) for size in exact):
        raise UnsupportedNodeError(
            "aligns corners by scales that make fractions of a position, which runtimes compute differently; "
            "expected sizes"
        )
    return (floor(exact[0]), floor(exact[1])), factors


def _factors(node: Node, value: Value, sizes: Mapping[int, int]) -> list[float]:
    """Return the scales of height and width for given sizes by axis."""
    if sizes.get(1, value.shape[1]) != value.shape[1]:
        raise UnsupportedNodeError("resizes the channels")
    factors = {axis: sizes[axis] / value.size(axis) for axis in (2, 3) if axis in sizes}
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        common = (min if policy == "not_larger" else max)(factors.values())
        factors = dict.fromkeys(factors, common)
    return [factors.get(axis, 1.0) for axis in (2, 3)]


def _layer(
    builder: Builder, node: Node, old: tuple[int, int], new: tuple[int, int], matrices: list[Array]
) -> Any:
    """Return a layer that is equal to the matrices; None if there is none."""
    factors = [after // before for before, after in zip(old, new, strict=True)]
    whole = all(after == before * factor for before, after, factor in zip(old, new, factors, strict=True))
    repeated = [
        np.repeat(np.eye(before), factor, axis=0) for before, factor in zip(old, factors, strict=True)
    ]
    name = builder.plain(node)
    if whole and all(map(np.array_equal, matrices, repeated)):
        return layers.UpSampling2D(tuple(factors), name=name)
    linear = [_linear(before, after) for before, after in zip(old, new, strict=True)]
    if all(map(np.allclose, matrices, linear)):
        return layers.Resizing(*new, interpolation="bilinear", name=name)
    return None


def _by_matrices(builder: Builder, image: Any, new: tuple[int, int], matrices: list[Array]) -> Any:
    """Multiply rows by one matrix and columns by another."""
    height, width, channels = image.shape[1:]
    rows = builder.reshaped(image, (height, width * channels))
    rows = keras.ops.matmul(matrices[0], rows)
    columns = builder.reshaped(rows, (new[0], width, channels))
    return keras.ops.matmul(matrices[1], columns)


def _linear(before: int, after: int) -> Array:
    places = [(index + 0.5) * before / after - 0.5 for index in range(after)]
    return np.stack([_weights(_triangle, place, before) for place in places])


def _places(
    node: Node, before: int, after: int, scale: float, region: tuple[float, float] | None
) -> list[float | None]:
    """Return the old position of each new one; None where it is outside of the region's image."""
    early = node.operator == "Upsample" or node.version < 11
    transformation = "asymmetric" if early else node.get("coordinate_transformation_mode", "half_pixel")
    if region is None:
        return [_place(transformation, index, before, after, scale) for index in range(after)]
    start, end = (share * (before - 1) for share in region)
    steps = [index / (after - 1) if after > 1 else 0.5 for index in range(after)]
    places = [start + step * (end - start) for step in steps]
    return [place if 0 <= place <= before - 1 else None for place in places]


def _matrix(node: Node, places: Sequence[float | None], before: int, scale: float) -> Array:
    """Return the weights [after, before] of the old positions for each new one."""
    early = node.operator == "Upsample" or node.version < 11
    mode = {"bilinear": "linear"}.get(node.get("mode", "nearest"), node.get("mode", "nearest"))
    rounding = _ROUNDED["floor" if early else node.get("nearest_mode", "round_prefer_floor")]
    cubic = partial(_cubic, a=node.get("cubic_coeff_a", -0.75))
    smooths = bool(node.get("antialias", 0))
    if mode not in ("nearest", "linear", "cubic") or (mode == "nearest" and smooths):
        raise UnsupportedNodeError(f"has the mode {mode!r}{' with antialiasing' if smooths else ''}")
    options: dict[str, Any] = {
        "shrinks": min(scale, 1.0) if smooths else 1.0,
        "inside": bool(node.get("exclude_outside", 0)),
    }

    if early and mode == "nearest" and scale < 1 and any(place % 1 for place in places if place is not None):
        raise UnsupportedNodeError(
            "shrinks to the nearest position as before version 11, which runtimes compute differently; "
            "export it with a newer version"
        )

    def row(place: float | None) -> Array:
        if place is None:
            return np.zeros(before, np.float32)
        if mode == "nearest":
            chosen: Array = np.eye(1, before, min(max(rounding(place), 0), before - 1), np.float32)[0]
            return chosen
        return _weights(_triangle if mode == "linear" else cubic, place, before, **options)

    return np.stack([row(place) for place in places])


def _place(transformation: str, index: int, before: int, after: int, scale: float) -> float:
    """Return the old position of a new one."""
    match transformation:
        case "half_pixel":
            return (index + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (index + 0.5) / scale - 0.5 if after > 1 else 0.0
        case "half_pixel_symmetric":
            adjusted = after / (scale * before)
            return before / 2 * (1 - adjusted) + (index + 0.5) / scale - 0.5
        case "align_corners":
            return index * (before - 1) / (after - 1) if after > 1 else 0.0
        case "asymmetric":
            return index / scale
    raise UnsupportedNodeError(f"has the coordinates {transformation!r}")


def _weights(
    kernel: Callable[[float], float], place: float, size: int, shrinks: float = 1.0, inside: bool = False
) -> Array:
    """Return the weights of the old positions for one new position.

    Args:
        kernel: The weight of a position at a distance.
        shrinks: Factor of distances: below 1, more positions count, which smooths a smaller image.
        inside: Whether positions outside do not count; otherwise, they are copies of the border.
    """
    reach = _REACH / shrinks
    positions = range(floor(place - reach) + 1, ceil(place + reach))
    shares = {position: kernel(abs(position - place) * shrinks) for position in positions}
    if inside:
        shares = {position: share for position, share in shares.items() if 0 <= position < size}
    row = np.zeros(size)
    for position, share in shares.items():
        row[min(max(position, 0), size - 1)] += share
    return (row / sum(shares.values())).astype(np.float32)


def _triangle(distance: float) -> float:
    return max(0.0, 1 - distance)


def _cubic(distance: float, a: float) -> float:
    """Return the cubic convolution kernel of Keys (1981)."""
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    if distance >= _REACH:
        return 0.0
    return a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
