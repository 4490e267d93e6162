"""Block packages with random weights, without any training, for `benchmarks.elastic.update`."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any, Final, NamedTuple

import keras
import numpy as np

from executors.structure.blocks import Block
from mistify.costs.quantization import Quantization
from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BLOCKS, BlockStore
from mistify.package.manifest import Manifest, MeasuredLatency, Versions
from mistify.package.records import describe_file
from mistify_client.assembly.stitching import stitch
from mistify_server.worker.packaging.conversion.blocks import block_store

layers = keras.layers

#: Shares of the inner channels that variants of a residual block keep.
_SHRUNK: Final = (0.5, 0.25)

#: A placeholder: the network is not measured, and only the device's measurements of its blocks matter.
_LATENCY: Final = MeasuredLatency(
    median_ms=1.0, p95_ms=1.0, runs=1, threads=1, machine="not measured", runtime="not measured"
)


class Size(NamedTuple):
    """The size of a residual network: the number and channels of its residual blocks, and its image size."""

    blocks: int
    width: int
    side: int


def write_package(directory: Path, size: Size, images: int) -> Path:
    """Write a package of a residual network, with random images next to it.

    Each residual block has variants with a half and a quarter of the inner channels. For every two neighbours
    there is one block that replaces both.

    Args:
        directory: A new directory for the package.
        images: Number of images.

    Returns:
        An `.npz` with `x` [images, side, side, 3].
    """
    directory.mkdir()
    x = np.random.default_rng(0).uniform(0, 1, (images, size.side, size.side, 3)).astype(np.float32)
    body = [_stem(size), *(_residual(f"block-{at}", at, 1, size) for at in _places(size))]
    original = [*body, _head(size, reduce(lambda features, block: block.model(features), body, x))]
    names = [block.file for block in original]
    blocks = [*original, *_variants(size)]
    for name, content in block_store(blocks, Quantization.NONE, served=names).items():
        (directory / name).write_bytes(content)
    serve = directory / "serve.tflite"
    store = BlockStore.load(directory)
    with BlockFiles(directory) as files:
        serve.write_bytes(stitch(files, store.network_of(names)))
    Manifest(
        job="benchmark",
        goal="elastic",
        budget={},
        achieved={},
        accuracy=0.0,
        validation_accuracy=0.0,
        latency=_LATENCY,
        inputs=store.inputs,
        outputs=store.outputs,
        versions=Versions(mistify="", tensorflow="", keras=""),
        files={file.name: describe_file(file) for file in (serve, directory / BLOCKS)},
        created=datetime.now(UTC),
    ).save(directory)
    data = directory.with_suffix(".npz")
    np.savez(data, x=x)
    return data


def _places(size: Size) -> range:
    """Return the positions at which residual blocks begin."""
    return range(1, size.blocks + 1)


def _variants(size: Size) -> Iterator[Block]:
    for at in _places(size):
        for kept in _SHRUNK:
            yield _residual(f"block-{at}-shrunk-{100 * kept:.0f}", at, 1, size, kept)
    for at in _places(size)[:-1]:
        yield _residual(f"block-{at}-merged", at, 2, size)


def _stem(size: Size) -> Block:
    inputs = keras.Input((size.side, size.side, 3), name="image")
    x = layers.Conv2D(size.width, 3, padding="same", activation="relu", name=_tensor(1))(inputs)
    return Block("stem", 0, 1, _random(inputs, x, 0))


def _residual(name: str, start: int, span: int, size: Size, kept: float = 1.0) -> Block:
    """Return a residual block; all blocks that begin at a position are drawn from the same seed."""
    inputs = keras.Input((size.side, size.side, size.width), name=_tensor(start))
    x = layers.Conv2D(int(kept * size.width), 3, padding="same", activation="relu")(inputs)
    x = layers.Conv2D(size.width, 3, padding="same")(x)
    outputs = layers.Add(name=_tensor(start + span))([inputs, x])
    return Block(name, start, span, _random(inputs, outputs, start))


def _head(size: Size, features: Any) -> Block:
    """Return the last block; its mean scores over features are 0, so that predicted classes differ."""
    start = size.blocks + 1
    inputs = keras.Input((size.side, size.side, size.width), name=_tensor(start))
    x = layers.Dense(10, name="scores")(layers.GlobalAveragePooling2D()(inputs))
    model = _random(inputs, x, start)
    kernel, bias = model.get_weights()
    model.set_weights([kernel, bias - np.mean(model(features), axis=0)])
    return Block("head", start, 1, model)


def _tensor(position: int) -> str:
    """Return the name of the tensor at a position between blocks."""
    return f"at_{position}"


def _random(inputs: Any, outputs: Any, seed: int) -> keras.Model:
    """Return a model with random weights that preserve the scale of features."""
    model, rng = keras.Model(inputs, outputs), np.random.default_rng(seed)
    model.set_weights([rng.normal(0, np.prod(w.shape[:-1]) ** -0.5, w.shape) for w in model.get_weights()])
    return model
