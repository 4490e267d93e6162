"""Pooling."""

from mistify_client.exporting.builder import Builder
from mistify_client.exporting.operators.elementwise import activated
from mistify_client.exporting.registry import Call, operator
from mistify_client.exporting.values import Value, channels_first
from mistify_client.exporting.windows import SAME, pads, spatial


@operator("MAX_POOL_2D", "AVERAGE_POOL_2D")
def pooling(builder: Builder, call: Call) -> Value:
    """Write a pooling, whose windows contain no padding."""
    value, options = builder.plain(call.argument(0)), call.options
    window, strides = [options.filterHeight, options.filterWidth], [options.strideH, options.strideW]
    axes = channels_first(value.rank)
    padding = pads(options.padding, spatial(value.shape), window, strides)
    if options.padding != SAME and call.kind == "MAX_POOL_2D":
        value, padding = builder.before_padding(value, padding, lowest=True)
    name = builder.node(
        "MaxPool" if call.kind == "MAX_POOL_2D" else "AveragePool",
        builder.arranged(value, axes),
        kernel_shape=window,
        strides=strides,
        pads=padding,
    )
    return activated(builder, call, Value(name, call.shape, axes))
