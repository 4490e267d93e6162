"""The block store of a network: its blocks, converted together, each in a separate file."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import keras
import numpy as np

from executors.structure.blocks import Block
from executors.structure.exporting import NamedFunction, constant
from executors.structure.signature import input_names, output_names
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.package.blocks import BLOCKS, BlockStore, BlockVariant, NetworkEstimate
from mistify.package.manifest import TensorInfo
from mistify.package.records import PackagedFile
from mistify.package.training import OutputEncoding
from mistify.tflite.combining import read_network
from mistify_server.worker.packaging.conversion.converter import convert_saved, save_functions
from mistify_server.worker.packaging.conversion.fixed_batch import with_fixed_batch
from mistify_server.worker.packaging.conversion.representative import (
    Examples,
    SignatureRows,
    one_by_one,
    typed,
)
from mistify_server.worker.packaging.tflite.boundaries import pass_integers
from mistify_server.worker.packaging.tflite.runner import Runner
from mistify_server.worker.packaging.tflite.splitting import split_by_signature


def block_store(
    blocks: Sequence[Block],
    precision: Quantization,
    examples: Examples | None = None,
    kinds: Mapping[str, OutputEncoding] | None = None,
    *,
    served: Sequence[str] = (),
    front: Sequence[NetworkEstimate] = (),
) -> dict[str, bytes]:
    """Convert blocks into a store, and return its files by name: a manifest and a `.tflite` per block.

    Each file has the signatures of a package, for any batch and for batch 1. In int8, blocks pass integers to
    each other, with the scale of the first block that ends at that position. If a block has no integer
    kernel, floats are passed.

    Args:
        blocks: The variants at each position, with those of the original network first.
        precision: The precision of the store; quantization-aware training is not possible.
        examples: Input of the network -> training data for calibrating integer activations.
        kinds: Output of the network -> its encoding; None if all are logits.
        served: Files of the blocks in the package's own network; empty if it is made of others.
        front: The best networks of these blocks.

    Raises:
        ValueError: A block has an operator that cannot be moved to another file.
    """
    networks = _converted(blocks, precision, examples)
    files = {block.file: with_fixed_batch(networks[block.name]) for block in blocks}
    manifest = _manifest(blocks, files, kinds or {}, served, front)
    return {BLOCKS: manifest.as_file(), **files}


def _converted(
    blocks: Sequence[Block], precision: Quantization, examples: Examples | None
) -> dict[str, bytes]:
    """Return a network for any batch per block, by block name."""
    functions = {block.name: NamedFunction.like(block.model, constant(block.model)) for block in blocks}
    rows = None if examples is None else partial(_rows, blocks, examples)
    with TemporaryDirectory() as directory:
        save_functions(functions, directory)
        network = read_network(convert_saved(directory, QuantizationConfig(precision=precision), rows))
    for position in range(1, max(block.end for block in blocks)):
        ending = [block.name for block in blocks if block.end == position]
        pass_integers(network, ending, [block.name for block in blocks if block.start == position])
    return split_by_signature(network)


def _rows(blocks: Sequence[Block], examples: Examples) -> SignatureRows:
    """Yield each example for each block, computed by the original network's blocks before it."""
    for row in one_by_one(typed(examples, blocks[0].model)):
        features: dict[int, dict[str, Any]] = {0: row}
        # The first of the blocks that end at a position belongs to the original network.
        for block in sorted(blocks, key=lambda block: block.end):
            yield block.name, features[block.start]
            if block.end not in features:
                features[block.end] = dict(_run(block.model, features[block.start]))


def _run(model: keras.Model, inputs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    tensors = [inputs[name] for name in input_names(model)]
    outputs = model(tensors if len(tensors) > 1 else tensors[0], training=False)
    for name, output in zip(output_names(model), keras.tree.flatten(outputs), strict=True):
        yield name, np.asarray(output)


def _manifest(
    blocks: Sequence[Block],
    files: Mapping[str, bytes],
    kinds: Mapping[str, OutputEncoding],
    served: Sequence[str],
    front: Sequence[NetworkEstimate],
) -> BlockStore:
    runners = {block.name: Runner(files[block.file]) for block in blocks}
    first, last = blocks[0], max(block.end for block in blocks)
    tensors: dict[int, tuple[TensorInfo, ...]] = {}
    for block in blocks:
        own = tuple(runners[block.name].outputs[name] for name in output_names(block.model))
        tensors.setdefault(block.end, own)
    return BlockStore(
        inputs=tuple(runners[first.name].inputs[name] for name in input_names(first.model)),
        positions=tuple(tensors[position][0] for position in range(1, last)),
        outputs=tensors[last],
        variants=tuple(
            BlockVariant(
                file=block.file,
                content=PackagedFile.of(files[block.file]),
                start=block.start,
                span=block.span,
                estimate=block.estimate,
            )
            for block in blocks
        ),
        kinds=dict(kinds),
        served=tuple(served),
        front=tuple(front),
    )
