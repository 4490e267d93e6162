"""A block store of a classifier of digits, whose subnets differ in latency and in accuracy.

No training: the features are random, and the last layer is fitted by ridge regression.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits

from executors.structure.blocks import Block
from mistify.costs.quantization import Quantization
from mistify.package.blocks import BLOCKS, BlockEstimate, BlockStore
from mistify_server.worker.packaging.conversion.blocks import block_store

layers = keras.layers

WIDTH = 12

#: The number of residual blocks, between a stem and a head.
RESIDUAL = 4


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return all images [1797, 8, 8, 1] and their classes, in random order."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    return (data.images[order, ..., None] / 16).astype(np.float32), data.target[order]


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(0, 1 / np.sqrt(np.prod(shape[:-1])), shape).astype(np.float32)


def stem() -> Block:
    inputs = keras.Input((8, 8, 1), name="image")
    model = keras.Model(
        inputs, layers.Conv2D(WIDTH, 3, padding="same", activation="relu", name="at_1")(inputs)
    )
    rng = np.random.default_rng(1)
    model.set_weights([2 * normal(rng, 3, 3, 1, WIDTH), np.zeros(WIDTH, np.float32)])
    return Block("stem", 0, 1, model)


def residual(name: str, start: int, span: int, inside: int) -> Block:
    """Return a residual block. Blocks with the same start share the weights of their first inner channels."""
    inputs = keras.Input((8, 8, WIDTH), name=f"at_{start}")
    x = layers.Conv2D(inside, 3, padding="same", activation="relu")(inputs)
    x = layers.Conv2D(WIDTH, 3, padding="same")(x)
    model = keras.Model(inputs, layers.Add(name=f"at_{start + span}")([inputs, x]))
    rng = np.random.default_rng(start)
    first, second = 2 * normal(rng, 3, 3, WIDTH, WIDTH), 0.3 * normal(rng, 3, 3, WIDTH, WIDTH)
    biases = np.zeros(inside, np.float32), np.zeros(WIDTH, np.float32)
    model.set_weights([first[..., :inside], biases[0], second[:, :, :inside], biases[1]])
    return Block(name, start, span, model)


def head(features: np.ndarray, classes: np.ndarray) -> Block:
    position = RESIDUAL + 1
    inputs = keras.Input((8, 8, WIDTH), name=f"at_{position}")
    model = keras.Model(inputs, layers.Dense(10, name="scores")(layers.Flatten()(inputs)))
    flat = np.hstack([features.reshape(len(features), -1), np.ones((len(features), 1))])
    solved = np.linalg.solve(flat.T @ flat + 10 * np.eye(flat.shape[1]), flat.T @ (10 * np.eye(10)[classes]))
    model.set_weights([solved[:-1], solved[-1]])
    return Block("head", position, 1, model)


@cache
def blocks() -> tuple[Block, ...]:
    """Return the blocks of the original network, then the variants; the head is fitted to 1,000 examples."""
    images, classes = digits()
    body = [stem(), *(residual(f"block-{at}", at, 1, WIDTH) for at in range(1, RESIDUAL + 1))]
    features = images[:1000]
    for block in body:
        features = np.asarray(block.model(features, training=False))
    shrunk = [residual(f"block-{at}-shrunk", at, 1, WIDTH // 3) for at in range(1, RESIDUAL + 1)]
    merged = [
        residual(f"block-{at}-merge{span}", at, span, WIDTH)
        for span in (2, 3)
        for at in range(1, RESIDUAL + 2 - span)
    ]
    original = [*body, head(features, classes[:1000])]
    return tuple(
        replace(block, estimate=BlockEstimate(flops=multiply_adds(block), loss=lost(block, original)))
        for block in (*original, *shrunk, *merged)
    )


def multiply_adds(block: Block) -> int:
    kernels = [weight for weight in block.model.get_weights() if weight.ndim > 1]
    return sum(kernel.size * (64 if kernel.ndim == 4 else 1) for kernel in kernels)


def lost(block: Block, original: list[Block]) -> float:
    """Return the increase in training cross-entropy if `block` replaces the original blocks at its place."""
    images, classes = digits()
    network = [one for one in original if one.end <= block.start or one.start >= block.end]
    network.insert(block.start, block)
    return _loss(network, images[:1000], classes[:1000]) - _loss(original, images[:1000], classes[:1000])


def _loss(network: list[Block], images: np.ndarray, classes: np.ndarray) -> float:
    for block in network:
        images = np.asarray(block.model(images, training=False))
    return float(np.mean(keras.losses.sparse_categorical_crossentropy(classes, images, from_logits=True)))


@cache
def files(precision: Quantization) -> dict[str, bytes]:
    return block_store(blocks(), precision, {"image": digits()[0][:40]})


def write(directory: Path, precision: Quantization = Quantization.NONE) -> BlockStore:
    """Write the store into a directory, which is created if missing, and return the store."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files(precision).items():
        (directory / name).write_bytes(content)
    assert (directory / BLOCKS).exists()
    return BlockStore.load(directory)
