"""Block stores of a small residual network, in float32 and in int8."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np

from executors.structure import analyse, fold_batch_norm, segments
from executors.structure.blocks import Block, blocks_of
from mistify.costs.quantization import Quantization
from mistify_server.worker.packaging.conversion.blocks import block_store
from tests.executors.structure.networks import randomised

layers = keras.layers

#: The network's own blocks and two variants: the second block with other weights, and the last two merged.
ORIGINAL = ("block-00.tflite", "block-01.tflite", "block-02.tflite", "block-03.tflite")
HALVED = "halved.tflite"
LAST_TWO = "last-two.tflite"


def residual(width: int = 8, seed: int = 0) -> keras.Model:
    """Return a stem, two residual blocks, and a head on flattened features, all with random weights."""
    inputs = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(width, 3, padding="same", use_bias=False, name="stem")(inputs)
    x = layers.ReLU(name="stem_relu")(layers.BatchNormalization(name="stem_norm")(x))
    for number in (1, 2):
        y = layers.Conv2D(width, 3, padding="same", activation="relu", name=f"in_{number}")(x)
        y = layers.Conv2D(width, 3, padding="same", name=f"out_{number}")(y)
        x = layers.Add(name=f"add_{number}")([x, y])
    x = layers.Flatten(name="flat")(layers.MaxPooling2D(4, name="pool")(x))
    return randomised(keras.Model(inputs, layers.Dense(5, name="scores")(x)), seed)


def images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=(count, 8, 8, 3)).astype(np.float32)


def variants(model: keras.Model) -> list[Block]:
    """Return the blocks of a network and the two variants."""
    original = blocks_of(model, 0.0)
    halved = keras.models.clone_model(original[1].model)
    halved.set_weights([weight / 2 for weight in original[1].model.get_weights()])
    *_, third, last = (part.graph for part in segments(analyse(fold_batch_norm(model)), 0.0))
    both = replace(third, nodes=third.nodes + last.nodes, outputs=last.outputs)
    last_two = both.build(lambda name, layer: type(layer).from_config(layer.get_config()), both.weights)
    return [*original, Block("halved", 1, 1, halved), Block("last-two", 2, 2, last_two)]


@cache
def files(precision: Quantization) -> dict[str, bytes]:
    """Return the files of the block store of `residual()`, by name."""
    return block_store(variants(residual()), precision, {"image": images(40, seed=1)})


def write(directory: Path, precision: Quantization = Quantization.NONE) -> Path:
    """Write the store into a directory, and return the directory."""
    for name, content in files(precision).items():
        (directory / name).write_bytes(content)
    return directory


def called(model: Any, inputs: Any) -> np.ndarray:
    return np.asarray(model(inputs, training=False))
