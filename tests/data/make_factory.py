"""Makes `factory/` and `factory_int8/`, packages with a factory: `python -m tests.data.make_factory`.

Nothing is trained: the network has random weights, and the assembler's outputs differ by task. In float32,
`expected.npz` has what the network with gates answers to some images, by task and limit.
"""

import shutil
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
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.conversion.cuttable import convert_cuttable
from mistify_server.worker.packaging.conversion.factory import convert_assembler, factory_files
from tests.executors.structure.networks import randomised
from tests.support.factories import ASKED, QUALITY, SPACE, images

layers = keras.layers

INPUT = TensorInfo(name="image", dtype="float32", shape=(-1, 8, 8, 1))
OUTPUT = TensorInfo(name="answer", dtype="float32", shape=(-1, 1))


def network() -> keras.Model:
    """A residual block, the inner convolution of which gets gates, and hidden neurons that get some, too."""
    x = image = keras.Input((8, 8, 1), name="image")
    x = layers.ReLU()(layers.Conv2D(8, 3, padding="same", name="stem")(x))
    y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(24, 3, padding="same", name="inner")(x)))
    x = layers.Add()([x, layers.Conv2D(8, 3, padding="same", name="outer")(y)])
    x = layers.Flatten()(layers.MaxPooling2D(4)(x))
    x = layers.Dense(16, "relu", name="hidden")(x)
    return keras.Model(image, layers.Dense(1, name="answer")(x))


@cache
def supernet(*, modulate: bool = True) -> Supernet:
    """A supernet of the network, whose assembler is far from where training starts."""
    keras.utils.set_random_seed(1)
    shape = AssemblerShape(SPACE.size, 8, 2, modulate)
    made = Supernet(analyse(randomised(network())), shape, SPACE, QUALITY)
    rng, units = np.random.default_rng(3), {group.units for group in made.groups}
    for layer in made.assembler.layers:
        if isinstance(layer, layers.Dense):
            # Gates differ by task; scales and shifts, which have one value for each unit, stay near 1 and 0.
            spread = 0.3 if layer.units in units else 2.0
            layer.kernel.assign(rng.normal(0, spread / np.sqrt(layer.kernel.shape[0]), layer.kernel.shape))
            layer.bias.assign(layer.bias + rng.normal(0, 0.1, layer.bias.shape))
    return made


def contents(precision: Quantization) -> dict[str, bytes]:
    """The files of a package but its manifest; the network of its goal is no slice."""
    quantization, examples = QuantizationConfig(precision=precision), {"image": images(48)}
    factory = factory_parts(supernet()).factory
    whole = convert_cuttable(factory.whole, quantization, examples)
    serve = convert(supernet().network, quantization, examples)
    return {
        NETWORK: serve,
        **factory_files(
            factory, whole, convert_assembler(factory.assembler), {"answer": OutputEncoding.LOGIT}
        ),
    }


def write_package(directory: Path, precision: Quantization) -> None:
    """Write a package in the place of an old one."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    files = contents(precision)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    Manifest(
        job="job-1",
        goal="two-odd",
        budget={"flops": 500.0},
        achieved={"flops": 400.0},
        accuracy=0.75,
        validation_accuracy=0.75,
        latency=MeasuredLatency(median_ms=0.5, p95_ms=0.6, runs=9, threads=1, machine="a", runtime="b"),
        inputs=(INPUT,),
        outputs=(OUTPUT,),
        labels={"answer": ("no", "yes")},
        quantization=precision,
        versions=Versions(mistify="0.1.0", tensorflow="2.21.0", keras="3.15.1"),
        files={name: PackagedFile.of(content) for name, content in files.items()},
        created=datetime(2026, 1, 2, tzinfo=UTC),
    ).save(directory)


def answers(task: str, limit: float) -> np.ndarray:
    """The output of the network with gates for the images."""
    (assembly,) = supernet().assemblies(SPACE.encode(SPACE.parse(task)), [limit])
    return supernet().outputs({"image": images(16)}, assembly)


if __name__ == "__main__":
    data = Path(__file__).parent
    write_package(data / "factory", Quantization.NONE)
    write_package(data / "factory_int8", Quantization.INT8)
    np.savez(
        data / "factory_expected.npz", **{f"{task} {limit:g}": answers(task, limit) for task, limit in ASKED}
    )
