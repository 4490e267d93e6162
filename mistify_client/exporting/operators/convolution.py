"""Convolutions, which ONNX computes with channels first."""

import numpy as np

from mistify_client.exporting.builder import Builder
from mistify_client.exporting.errors import NotExportableError
from mistify_client.exporting.operators.elementwise import activated
from mistify_client.exporting.registry import Call, operator
from mistify_client.exporting.shapes import count
from mistify_client.exporting.values import Array, Value, channels_first
from mistify_client.exporting.windows import SAME, dilated, pads, spatial


@operator("CONV_2D")
def convolution(builder: Builder, call: Call) -> Value:
    """Write a plain or grouped convolution with a kernel [output, height, width, input / groups]."""
    kernel = np.moveaxis(call.constant(1), -1, 1)
    return _convolution(builder, call, kernel, _strides(call), _dilations(call))


@operator("DEPTHWISE_CONV_2D")
def depthwise(builder: Builder, call: Call) -> Value:
    """Write a convolution of each channel with a kernel [1, height, width, input * multiplier]."""
    kernel = np.moveaxis(call.constant(1), -1, 0)
    return _convolution(builder, call, kernel, _strides(call), _dilations(call))


@operator("CONV_3D")
def convolution_over_volumes(builder: Builder, call: Call) -> Value:
    """Write a convolution with a kernel [depth, height, width, input, output]."""
    kernel, options = call.constant(1).transpose(4, 3, 0, 1, 2), call.options
    return _convolution(
        builder,
        call,
        kernel,
        [options.strideD, options.strideH, options.strideW],
        [options.dilationDFactor, options.dilationHFactor, options.dilationWFactor],
    )


def _convolution(
    builder: Builder, call: Call, kernel: Array, strides: list[int], dilations: list[int]
) -> Value:
    """Write a convolution with a kernel in ONNX's order [output, input / groups, ...]."""
    value = builder.plain(call.argument(0))
    channels = count(value.shape[-1:])
    window = kernel.shape[2:]
    padding = pads(call.options.padding, spatial(value.shape), dilated(window, dilations), strides)
    if call.options.padding != SAME:
        value, padding = builder.before_padding(value, padding)
    name = builder.layer(
        "Conv",
        builder.arranged(value, channels_first(value.rank)),
        kernel,
        _bias(call, 2),
        kernel_shape=window,
        strides=strides,
        dilations=dilations,
        pads=padding,
        group=channels // kernel.shape[1],
    )
    return activated(builder, call, Value(name, call.shape, channels_first(value.rank)))


@operator("TRANSPOSE_CONV")
def transposed(builder: Builder, call: Call) -> Value:
    """Write a transposed convolution with a kernel [output, height, width, input]."""
    return _transposed(builder, call, call.constant(1).transpose(3, 0, 1, 2), _strides(call))


@operator("CONV_3D_TRANSPOSE")
def transposed_over_volumes(builder: Builder, call: Call) -> Value:
    """Write a transposed convolution with a kernel [depth, height, width, output, input]."""
    options = call.options
    strides = [options.strideD, options.strideH, options.strideW]
    return _transposed(builder, call, call.constant(1).transpose(4, 3, 0, 1, 2), strides)


def _transposed(builder: Builder, call: Call, kernel: Array, strides: list[int]) -> Value:
    """Write a transposed convolution with a kernel in ONNX's order [input, output, ...]."""
    value, window = builder.plain(call.argument(2)), kernel.shape[2:]
    before, behind, rest = [], [], []
    for size, made, stride, extent in zip(
        spatial(value.shape), spatial(call.shape), strides, window, strict=True
    ):
        surplus = (size - 1) * stride + extent - made
        if surplus < 0 and call.options.padding != SAME and -surplus >= stride:
            raise NotExportableError("its output is larger than its windows")
        before.append(max(surplus, 0) // 2 if call.options.padding == SAME else 0)
        behind.append(max(surplus, 0) - before[-1])
        rest.append(max(-surplus, 0))
    axes = channels_first(value.rank)
    name = builder.layer(
        "ConvTranspose",
        builder.arranged(value, axes),
        kernel,
        _bias(call, 3),
        kernel_shape=window,
        strides=strides,
        pads=[*before, *behind],
        output_padding=rest,
    )
    return activated(builder, call, Value(name, call.shape, axes))


def _bias(call: Call, number: int) -> Array | None:
    return None if call.optional(number) is None else call.constant(number)


def _strides(call: Call) -> list[int]:
    return [call.options.strideH, call.options.strideW]


def _dilations(call: Call) -> list[int]:
    return [call.options.dilationHFactor, call.options.dilationWFactor]
