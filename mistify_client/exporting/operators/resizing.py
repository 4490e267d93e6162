"""Images of another size."""

import numpy as np

from mistify_client.exporting.builder import Builder
from mistify_client.exporting.registry import Call, operator
from mistify_client.exporting.repetition import REPEAT
from mistify_client.exporting.values import Value, channels_first, fixed


@operator("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(builder: Builder, call: Call) -> Value:
    """Write an interpolation."""
    axes, options = channels_first(4), call.options
    value = builder.arranged(call.argument(0), axes)
    centers = "half_pixel" if options.halfPixelCenters else "asymmetric"
    attributes = {"coordinate_transformation_mode": "align_corners" if options.alignCorners else centers}
    if call.kind == "RESIZE_BILINEAR":
        attributes["mode"] = "linear"
    else:
        rounded = options.alignCorners or options.halfPixelCenters
        attributes |= {"mode": "nearest", "nearest_mode": "round_prefer_ceil" if rounded else "floor"}
    sizes = zip(fixed(call.shape[1:3]), fixed(value.shape[1:3]), strict=True)
    # Factors rather than sizes, which would fix the batch.
    factors = np.array([1, 1, *(made / size for made, size in sizes)], np.float32)
    return Value(builder.node("Resize", value, None, factors, **attributes), call.shape, axes)


@operator(REPEAT)
def repeat(builder: Builder, call: Call) -> Value:
    """Write the entries of some axes several times, each next to itself."""
    value = builder.plain(call.argument(0))
    factors = np.array([call.options.times[axis] for axis in value.axes], np.float32)
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    name = builder.node("Resize", value, None, factors, mode="nearest", **attributes)
    return Value(name, call.shape, value.axes)
