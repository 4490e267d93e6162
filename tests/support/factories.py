"""Packages with a factory: a small network with gates, and an assembler that tells tasks apart.

Nothing is trained.
"""

from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import keras
import numpy as np

from executors.algorithms.nnfactory.assembler import AssemblerShape
from executors.algorithms.nnfactory.parts import factory_parts
from executors.algorithms.nnfactory.supernet import Supernet
from executors.structure import analyse
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.package.manifest import NETWORK, Manifest, MeasuredLatency, TensorInfo, Versions
from mistify.package.records import PackagedFile
from mistify.package.training import OutputEncoding
from mistify.scenarios.quality import Quality
from mistify.scenarios.space import TaskSpace
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.conversion.factory import factory_files

layers = keras.layers

SPACE = TaskSpace.read(
    '{"properties": {"how many": ["has", "exactly:1", "exactly:2"], "which": ["1", "2", "3", "4"]},'
    ' "names": {"odd": ["1", "3"], "even": ["2", "4"]},'
    ' "tasks": {"two-odd": ["exactly:2", "odd"], "has-4": ["has", "4"], "one-2": ["exactly:1", "2"]}}'
)

#: A task of the space that was never trained.
UNSEEN = "exactly:1, even"

#: The best limit is neither the least nor the largest.
QUALITY = Quality(
    tasks=("exactly:2, odd", "has, 4", "exactly:1, 2"),
    limits=(0.1, 0.25, 0.5, 1.0),
    scores=((0.7, 0.8, 0.95, 0.9), (0.8, 0.85, 0.9, 0.85), (0.6, 0.7, 0.8, 0.75)),
)

INPUT = TensorInfo(name="image", dtype="float32", shape=(-1, 8, 8, 1))
OUTPUT = TensorInfo(name="answer", dtype="float32", shape=(-1, 1))


def images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 8, 8, 1), np.float32)


def network() -> keras.Model:
    """A residual block, an inner convolution of which has gates, and hidden neurons that have some, too."""
    x = image = keras.Input((8, 8, 1), name="image")
    x = layers.ReLU()(layers.Conv2D(8, 3, padding="same", name="stem")(x))
    y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(24, 3, padding="same", name="inner")(x)))
    x = layers.Add()([x, layers.Conv2D(8, 3, padding="same", name="outer")(y)])
    x = layers.Flatten()(layers.MaxPooling2D(4)(x))
    x = layers.Dense(16, "relu", name="hidden")(x)
    return keras.Model(image, layers.Dense(1, name="answer")(x))


@cache
def supernet(modulate: bool = True) -> Supernet:
    """A supernet of the network."""
    keras.utils.set_random_seed(1)
    made = Supernet(
        analyse(randomised(network())), AssemblerShape(SPACE.size, 8, 2, modulate), SPACE, QUALITY
    )
    rng = np.random.default_rng(2)
    for layer in made.assembler.layers:
        if isinstance(layer, layers.Dense):
            layer.kernel.assign(2 * normal(rng, *layer.kernel.shape))
            layer.bias.assign(layer.bias + rng.normal(0, 0.3, layer.bias.shape))
    return made


def randomised(model: keras.Model, seed: int = 0) -> keras.Model:
    """The model with random weights, none of them at 0 or 1."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        if len(weight.shape) > 1:
            weight.assign(2 * normal(rng, *weight.shape))
        elif "variance" in weight.path or "gamma" in weight.path:
            weight.assign(rng.uniform(0.5, 1.5, weight.shape))
        else:
            weight.assign(rng.normal(0, 0.3, weight.shape))
    return model


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(0, 1 / np.sqrt(np.prod(shape[:-1])), shape).astype(np.float32)


@cache
def files(precision: Quantization = Quantization.NONE) -> dict[str, bytes]:
    """The files of the factory at a precision."""
    factory = factory_parts(supernet()).factory
    kinds = {"answer": OutputEncoding.LOGIT}
    return factory_files(factory, QuantizationConfig(precision=precision), {"image": images(48)}, kinds)


@cache
def shipped_network(precision: Quantization = Quantization.NONE) -> bytes:
    """The network of the package's goal, which is no slice."""
    return convert(supernet().network, QuantizationConfig(precision=precision), {"image": images(48)})


def make_package(directory: Path, precision: Quantization = Quantization.NONE) -> Path:
    """Make a package with a factory."""
    contents = {NETWORK: shipped_network(precision), **files(precision)}
    directory.mkdir()
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    latency = MeasuredLatency(median_ms=0.5, p95_ms=0.6, runs=9, threads=1, machine="a", runtime="b")
    Manifest(
        job="job-1",
        goal="two-odd",
        budget={"flops": 500.0},
        achieved={"flops": 400.0},
        accuracy=0.75,
        validation_accuracy=0.75,
        latency=latency,
        inputs=(INPUT,),
        outputs=(OUTPUT,),
        labels={"answer": ("no", "yes")},
        quantization=precision,
        versions=Versions(mistify="0.1.0", tensorflow="2.21.0", keras="3.15.1"),
        files={name: PackagedFile.of(content) for name, content in contents.items()},
        created=datetime(2026, 1, 2, tzinfo=UTC),
    ).save(directory)
    return directory
