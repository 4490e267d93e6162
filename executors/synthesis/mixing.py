"""Data augmentation by mixing the available examples."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from executors.data import Array
from executors.inspection.limits import GIB
from executors.structure.signature import Signature

#: Mixed examples per original one, and the maximum size of all together, in bytes.
_TIMES: Final = 7
_BYTES: Final = GIB // 2


def with_mixed(
    inputs: Mapping[str, Array], signature: Signature, rng: np.random.Generator
) -> dict[str, Array]:
    """Return examples, and several times as many with a part replaced by that of another example.

    The part is a box along all axes but the last, which holds channels (Yun et al., CutMix, 2019). Its
    position is random in both examples.

    Args:
        inputs: Input name -> [examples, ...].
        signature: Inputs of tokens, or with channels only, are not mixed.
        rng: Draws examples and boxes.

    Returns:
        The inputs, the given ones first; only these if nothing can be mixed, or memory does not suffice.
    """
    names = [tensor.name for tensor in signature.inputs if tensor.figures and len(tensor.shape) > 1]
    room = _BYTES // max(sum(array.nbytes for array in inputs.values()), 1)
    times = min(_TIMES, room) if names else 0
    parts = [inputs, *(_mixed(inputs, names, rng) for _ in range(times))]
    return {name: np.concatenate([part[name] for part in parts]) for name in inputs}


def _mixed(inputs: Mapping[str, Array], names: list[str], rng: np.random.Generator) -> dict[str, Array]:
    """Return the same number of examples, each with a part of another one in the named inputs."""
    others = rng.permutation(len(next(iter(inputs.values()))))
    changed = {name: inputs[name].copy() for name in names}
    for name, array in changed.items():
        for example, other in enumerate(others):
            boxes = [_box(length, rng) for length in array.shape[1:-1]]
            here, there = zip(*boxes, strict=True)
            array[(example, *here)] = inputs[name][(other, *there)]
    return {**inputs, **changed}


def _box(length: int, rng: np.random.Generator) -> tuple[slice, slice]:
    """Return two random slices of an axis with equal lengths, a quarter to three quarters of the axis."""
    size = rng.integers(max(length // 4, 1), max(3 * length // 4, 1), endpoint=True)
    first, second = rng.integers(0, length - size, 2, endpoint=True)
    return slice(first, first + size), slice(second, second + size)
