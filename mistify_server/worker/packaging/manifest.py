"""The manifest of a package: its goal and its measurements."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version

from mistify.costs.budget import memory_axis, of_package
from mistify.package.manifest import Branch, Manifest, TensorInfo, Versions
from mistify.package.records import PackagedFile
from mistify.version import installed_version
from mistify_server.tasks.tasks import PackageTask
from mistify_server.worker.packaging.conversion.branches import BranchNetwork
from mistify_server.worker.packaging.conversion.result import Conversion
from mistify_server.worker.packaging.measurement.package import (
    Measurement,
    PackageMeasurements,
    measured_here,
)
from mistify_server.worker.packaging.tflite.runner import Runner


def manifest_of(
    conversion: Conversion, measured: PackageMeasurements, task: PackageTask, files: Mapping[str, bytes]
) -> Manifest:
    """Return the manifest of a package.

    Args:
        conversion: The networks of the package.
        measured: Measurements of the package.
        files: Name -> content of each file except the manifest.
    """
    spec, networks, own = task.spec, conversion.networks, measured.own
    inputs, outputs = _tensors(conversion, task.recipe.data.channels_first)
    return Manifest(
        job=task.job_id,
        goal=task.goal_id,
        budget=dict(spec.budget),
        metric=task.recipe.data.metric,
        targets=spec.targets,
        achieved={
            **of_package(task.costs, integer_inputs=spec.quantization.integer_inputs),
            **measured.costs,
        },
        measured=measured_here(own.latency, spec.quantization.precision),
        accuracy=own.test.accuracy,
        accuracy_examples=own.test.examples,
        validation_accuracy=own.validation.accuracy,
        output_scores=own.test.outputs,
        validation_output_scores=own.validation.outputs,
        latency=own.latency,
        inputs=inputs,
        outputs=outputs,
        labels=dict(conversion.description.labels),
        preparation=dict(conversion.description.preparation),
        quantization=spec.quantization.precision,
        branches=_branches(conversion, measured, task),
        default_branch=measured.default,
        compression=spec.compression,
        task=spec.task,
        note="; ".join(filter(None, (conversion.note, measured.note))),
        tunable=dict(networks.tunable),
        training=networks.training,
        training_note=networks.note,
        versions=_versions(),
        files={name: PackagedFile.of(content) for name, content in files.items()},
        created=datetime.now(UTC),
    )


def _tensors(
    conversion: Conversion, channels_first: Sequence[str]
) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """Return the inputs and the outputs of a package, in order.

    Args:
        channels_first: Inputs that apps may also pass with channels first.
    """
    runner = Runner(conversion.networks.serve)
    inputs = tuple(
        runner.inputs[name].model_copy(update={"channels_first": name in channels_first})
        for name in conversion.inputs
    )
    return inputs, tuple(runner.outputs[name] for name in conversion.outputs)


def _branches(conversion: Conversion, measured: PackageMeasurements, task: PackageTask) -> tuple[Branch, ...]:
    networks = conversion.branches.networks if conversion.branches else ()
    return tuple(
        _branch(network, measurement, task)
        for network, measurement in zip(networks, measured.branches, strict=False)
    )


def _branch(network: BranchNetwork, measurement: Measurement, task: PackageTask) -> Branch:
    precision = task.spec.quantization.precision
    return Branch(
        share=network.share,
        achieved={**network.costs, memory_axis(precision): measurement.memory_bytes},
        measured=measured_here(measurement.latency, precision),
        accuracy=measurement.test.accuracy,
        validation_accuracy=measurement.validation.accuracy,
        latency=measurement.latency,
    )


@cache
def _versions() -> Versions:
    return Versions(mistify=installed_version(), tensorflow=version("tensorflow"), keras=version("keras"))
