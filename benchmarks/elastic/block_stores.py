"""Memory of one block of a store, and the time to stitch all of its blocks; a part of `elastic.blocks`."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final

import keras
from rich.console import Console

from benchmarks.harness.run import median_seconds
from executors.structure.blocks import blocks_of
from mistify.costs.quantization import Quantization
from mistify_client.assembly.stitching import stitched
from mistify_server.worker.packaging.conversion.blocks import block_store

#: The largest share of the parameters up to which segments are joined.
LARGEST: Final = 0.1

_STITCHES: Final = 15

_MEGABYTE: Final = 1e6


def memory_share() -> float:
    """Return the memory of one block of a 40 MB store relative to that of the whole network."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        files = _store(directory, _convolutions(depth=16, width=256))
        (directory / "whole.tflite").write_bytes(
            stitched({file: (directory / file).read_bytes() for file in files})
        )
        nothing, whole, block = (
            median(_resident_bytes(directory / part for part in parts) for _ in range(3))
            for parts in ((), ("whole.tflite",), (files[len(files) // 2],))
        )
        size = sum((directory / file).stat().st_size for file in files)
    rows = {"files": size, "whole": whole - nothing, "one block": block - nothing, "bare process": nothing}
    Console().print(", ".join(f"{name} {count / _MEGABYTE:.1f} MB" for name, count in rows.items()))
    return (block - nothing) / (whole - nothing)


def stitch_ms() -> float:
    """Return the milliseconds for stitching a 1 MB network."""
    with TemporaryDirectory() as name:
        files = _store(Path(name), _convolutions(depth=18, width=41))
        blocks = {file: (Path(name) / file).read_bytes() for file in files}
    taken = 1e3 * median_seconds(lambda: stitched(blocks), _STITCHES, process_time)
    size = sum(map(len, blocks.values())) / _MEGABYTE
    Console().print(f"{len(files)} blocks, {size:.2f} MB, stitched in {taken:.0f} ms")
    return taken


def _resident_bytes(paths: Iterable[Path]) -> int:
    command = [sys.executable, "-m", "benchmarks.elastic.blocks_side", *map(str, paths)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _store(directory: Path, model: keras.Model) -> list[str]:
    """Write the store of a model into a directory, and return the names of the blocks' files."""
    blocks = blocks_of(model, LARGEST)
    for name, content in block_store(blocks, Quantization.NONE).items():
        (directory / name).write_bytes(content)
    return [block.file for block in blocks]


def _convolutions(depth: int, width: int) -> keras.Model:
    """Return residual blocks of two convolutions each, with random weights.

    Args:
        depth: Number of convolutions.
        width: Channels of each convolution.
    """
    layers = keras.layers
    inputs = keras.Input((16, 16, 3))
    x = layers.Conv2D(width, 3, padding="same", activation="relu")(inputs)
    for _ in range(depth // 2):
        y = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        x = layers.ReLU()(layers.Add()([x, layers.Conv2D(width, 3, padding="same")(y)]))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
