"""Dilated convolutions, which LiteRT's converter may write as three operators.

It divides the positions among more examples (`SPACE_TO_BATCH_ND`), so that those of a window are neighbours,
convolves them without dilation, and puts the positions together again (`BATCH_TO_SPACE_ND`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Final

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from mistify_client.exporting.network import Network, Operator
from mistify_client.exporting.windows import SAME, dilated, pads, spatial

_CONVOLUTIONS: Final = ("CONV_2D", "DEPTHWISE_CONV_2D")


def with_dilations(network: Network) -> Network:
    """Return a network with a single operator for each dilated convolution."""
    readers = Counter(number for operator in network.operators for number in operator.inputs)
    readers.update(network.outputs.values())
    makers = {number: operator for operator in network.operators for number in operator.outputs}
    operators: list[Operator] = []
    for operator in network.operators:
        parts = _parts(operator, makers, readers)
        made = None if parts is None else _dilated(network, *parts)
        if parts is not None and made is not None:
            operators = [other for other in operators if other not in parts]
        operators.append(made or operator)
    return replace(network, operators=operators)


def _parts(
    last: Operator, makers: Mapping[int, Operator], readers: Mapping[int, int]
) -> tuple[Operator, Operator, Operator] | None:
    """Return the three operators that end with this one; None if it does not end such a sequence."""
    if last.kind != "BATCH_TO_SPACE_ND" or readers[last.inputs[0]] > 1:
        return None
    convolution = makers.get(last.inputs[0])
    if convolution is None or convolution.kind not in _CONVOLUTIONS or readers[convolution.inputs[0]] > 1:
        return None
    first = makers.get(convolution.inputs[0])
    return (first, convolution, last) if first is not None and first.kind == "SPACE_TO_BATCH_ND" else None


def _dilated(network: Network, first: Operator, convolution: Operator, last: Operator) -> Operator | None:
    """Return a convolution in place of three operators; None if its paddings are unusual."""
    numbers = [network.constants.get(number) for number in (*first.inputs[1:], *last.inputs[1:])]
    if any(one is None for one in numbers):
        return None
    blocks, added, _, cropped = (np.asarray(one).tolist() for one in numbers)
    options = copy(convolution.options)
    if options.padding == SAME or len(blocks) != len(spatial(network.shapes[first.inputs[0]])):
        return None
    kernel = network.constants[convolution.inputs[1]].shape[1:3]
    sides = _sides(added, cropped)
    for padding in (schema.Padding.VALID, SAME):
        sizes = spatial(network.shapes[first.inputs[0]])
        if pads(padding, sizes, dilated(kernel, blocks), [1] * len(sizes)) == sides:
            options.padding = padding
            options.dilationHFactor, options.dilationWFactor = blocks
            inputs = (first.inputs[0], *convolution.inputs[1:])
            return replace(convolution, inputs=inputs, outputs=last.outputs, options=options)
    return None


def _sides(added: Sequence[Sequence[int]], cropped: Sequence[Sequence[int]]) -> list[int]:
    """Return the paddings before all axes and behind them, without what is cropped again."""
    return [each[side] - crop[side] for side in (0, 1) for each, crop in zip(added, cropped, strict=True)]
