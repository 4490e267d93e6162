"""Tiny packages: a network from the test data, with a manifest."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

from mistify.package.manifest import Branch, Manifest, MeasuredLatency, TensorInfo, Versions
from mistify.package.records import describe_file

#: The costs of the goal that the packages are for, and of the job's source.
COSTS = {"flops": 1000.0, "params": 100.0, "memory_bytes": 4000.0, "latency_ms@host": 0.5}


def tensors(*names_and_shapes: tuple[str, tuple[int, ...]]) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(name=name, dtype="float32", shape=shape) for name, shape in names_and_shapes)


IMAGE, SCORES = tensors(("image", (-1, 4, 4, 1)), ("scores", (-1, 3)))
PAIR = tensors(("left", (-1, 4)), ("right", (-1, 4)))
COMPARISON = tensors(("mix", (-1, 2)), ("difference", (-1, 4)))


LATENCY = MeasuredLatency(
    median_ms=0.1, p95_ms=0.2, runs=50, threads=1, machine="x86_64", runtime="LiteRT 2.3.0"
)


def make_package(
    directory: Path,
    network: Path,
    inputs: tuple[TensorInfo, ...],
    outputs: tuple[TensorInfo, ...],
    branches: tuple[Branch, ...] = (),
) -> Path:
    directory.mkdir()
    shutil.copyfile(network, directory / "serve.tflite")
    Manifest(
        job="job-1",
        goal="half",
        budget={"flops": 500.0},
        achieved=COSTS,
        accuracy=0.75,
        validation_accuracy=0.75,
        latency=LATENCY,
        inputs=inputs,
        outputs=outputs,
        branches=branches,
        default_branch=len(branches) // 2,
        versions=Versions(mistify="0.1.0", tensorflow="2.21.0", keras="3.15.1"),
        files={"serve.tflite": describe_file(directory / "serve.tflite")},
        created=datetime(2026, 1, 2, tzinfo=UTC),
    ).save(directory)
    return directory
