"""The units of a slice as bytes."""

import io
from collections.abc import Iterator, Sequence

import numpy as np

from executors.data import Array
from mistify.tflite.slicing import OpenUnits


def write_units(groups: Sequence[OpenUnits]) -> bytes:
    """Return the open units of each group; equal units give equal bytes."""
    file = io.BytesIO()
    np.savez(file, **dict(_arrays(groups)))  # type: ignore[arg-type]
    return file.getvalue()


def read_units(content: bytes) -> tuple[OpenUnits, ...]:
    """Return what `write_units` wrote."""
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        count = sum(name.startswith("kept") for name in arrays)
        return tuple(
            OpenUnits(arrays[f"kept-{group}"], arrays.get(f"scale-{group}"), arrays.get(f"shift-{group}"))
            for group in range(count)
        )


def _arrays(groups: Sequence[OpenUnits]) -> Iterator[tuple[str, Array]]:
    for number, group in enumerate(groups):
        yield f"kept-{number}", group.kept
        if group.scale is not None:
            yield f"scale-{number}", group.scale
        if group.shift is not None:
            yield f"shift-{number}", group.shift
