"""Factories of supernets, and packages with one whose weights are random, without any training."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.factory.digits import named_questions, space_of
from benchmarks.factory.networks import quad_resnet
from executors.algorithms.nnfactory.assembler import AssemblerShape
from executors.algorithms.nnfactory.params import NNFactoryParams
from executors.algorithms.nnfactory.parts import factory_parts
from executors.algorithms.nnfactory.supernet import Supernet
from executors.structure import analyse
from mistify.config.package.quantization import QuantizationConfig
from mistify.package.manifest import NETWORK, Manifest, MeasuredLatency, TensorInfo, Versions
from mistify.package.records import PackagedFile
from mistify.package.training import OutputEncoding
from mistify.scenarios.quality import Quality, measured_limits
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.conversion.cuttable import convert_cuttable
from mistify_server.worker.packaging.conversion.factory import convert_assembler, factory_files

#: A placeholder: only the device's own measurements matter.
_LATENCY: Final = MeasuredLatency(
    median_ms=1.0, p95_ms=1.0, runs=1, threads=1, machine="not measured", runtime="not measured"
)


def write_package(directory: Path, times: int) -> None:
    """Write a package of the network for four digits, whose own network is the supernet.

    The expected quality rises with the limit.

    Args:
        directory: A new directory for the package.
        times: Makes the network this many times as wide.
    """
    directory.mkdir()
    supernet = _supernet(times)
    files = {
        NETWORK: convert(supernet.network, QuantizationConfig()),
        **files_of(supernet, {"answer": OutputEncoding.SIGMOID}),
    }
    for name, content in files.items():
        (directory / name).write_bytes(content)
    Manifest(
        job="benchmark",
        goal="factory",
        budget={},
        achieved={},
        accuracy=0.0,
        validation_accuracy=0.0,
        latency=_LATENCY,
        inputs=(TensorInfo(name="image", dtype="float32", shape=(-1, 16, 16, 1)),),
        outputs=(TensorInfo(name="answer", dtype="float32", shape=(-1, 1)),),
        versions=Versions(mistify="", tensorflow="", keras=""),
        files={name: PackagedFile.of(content) for name, content in files.items()},
        created=datetime.now(UTC),
    ).save(directory)


def files_of(supernet: Supernet, kinds: Mapping[str, OutputEncoding]) -> dict[str, bytes]:
    """Return the files of a supernet's factory by name.

    Args:
        kinds: Output of the network -> its encoding.
    """
    factory = factory_parts(supernet).factory
    if factory is None:
        raise ValueError("the supernet has no factory")
    whole = convert_cuttable(factory.whole, QuantizationConfig(), {})
    return factory_files(factory, whole, convert_assembler(factory.assembler), kinds)


def _supernet(times: int) -> Supernet:
    """Return a supernet with random weights."""
    params, space = NNFactoryParams(), space_of(named_questions())
    limits, tasks = measured_limits(params.least_limit), tuple(map(str, space.listed))
    quality = Quality(tasks=tasks, limits=limits, scores=(limits,) * len(tasks))
    shape = AssemblerShape(space.size, params.encoder, params.gaters, params.modulate)
    return Supernet(analyse(quad_resnet(times)), shape, space, quality)
