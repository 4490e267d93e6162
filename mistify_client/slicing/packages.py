"""Packages of slices: a version beside the shipped package, or a package of its own."""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from mistify.config.data.metric import Metric
from mistify.costs.budget import HOST_NAME, at_threads, latency_axis, memory_axis, size_axis
from mistify.errors import Problem, invalid_config
from mistify.files.writing import sync_path
from mistify.package.factory import AskedTask
from mistify.package.manifest import NETWORK, Manifest, TensorInfo
from mistify.package.opened import Package
from mistify.package.records import PackagedFile, describe_file
from mistify.package.source import SOURCE
from mistify.tflite.resizable import read_resizable
from mistify.tflite.session import Session
from mistify_client.runtime.versions import state_directory
from mistify_client.slicing.search import MadeSlice, SliceLimits

#: Why a device cannot tune a slice.
_NOT_TRAINED = "a slice that was cut on a device has no train.tflite"


def slice_manifest(
    shipped: Manifest, made: MadeSlice, task: AskedTask, limits: SliceLimits, *, examples: int, note: str
) -> Manifest:
    """Return the manifest of a slice.

    Args:
        shipped: The manifest of the package that it was cut out of.
        made: Its quality is a score on the device's data, or the expected one.
        examples: Number of the device's examples behind its quality; 0 for the expected one.
        note: Says where its quality comes from.
    """
    inputs, outputs = tensors_of(read_resizable(made.network), shipped)
    content = describe_file(made.network)
    threads, precision = made.latency.threads, shipped.quantization
    latency = latency_axis(at_threads(HOST_NAME, threads), precision)
    memory = memory_axis(precision)
    asked = {latency: limits.latency_ms, memory: limits.memory_bytes}
    return shipped.model_copy(
        update={
            "task": task.config,
            "labels": _labels(shipped, task),
            "budget": {axis: limit for axis, limit in asked.items() if limit is not None},
            "metric": Metric.BALANCED_ACCURACY,
            "targets": (),
            "achieved": {
                latency: made.latency.median_ms,
                memory: made.memory_bytes,
                size_axis(precision): float(content.size),
            },
            "measured": {latency: made.latency.median_ms},
            "accuracy": made.candidate.quality,
            "accuracy_examples": examples,
            "validation_accuracy": made.candidate.quality,
            "output_scores": (),
            "validation_output_scores": (),
            "latency": made.latency,
            "inputs": inputs,
            "outputs": outputs,
            "branches": (),
            "default_branch": 0,
            "compression": None,
            "note": note,
            "tunable": {},
            "training": None,
            "training_note": _NOT_TRAINED,
            "tuned_from": None,
            "files": {**_described_files(shipped), NETWORK: content},
            "created": datetime.now(UTC),
        }
    )


def complete_package(shipped: Package, manifest: Manifest, directory: Path) -> None:
    """Add the other files of a package to the network of a slice."""
    for name in _described_files(shipped.manifest):
        shutil.copyfile(shipped.directory / name, directory / name)
    manifest.save(directory)


def check_place(out: Path | None, package: Path, *, other_outputs: bool) -> None:
    """Check that a directory can be made for a package.

    Args:
        out: None to install the slice as a version.
        package: The directory of the package that was shipped.
        other_outputs: Whether the slice has other outputs than the shipped package, so that it needs one of
            its own.

    Raises:
        MistifyError: INVALID_CONFIG, it is needed; there is something in its place, or no directory for it;
            or it would be a part of the shipped package.
    """
    if out is None:
        if not other_outputs:
            return
        expected = "a directory for a package of its own, as other classes are another output"
        problem = Problem("--out", "nothing", expected, "give one")
    elif os.path.lexists(out):
        problem = Problem("--out", str(out), "a directory that does not exist yet", "give another one")
    elif not (out.parent.is_dir() and os.access(out.parent, os.W_OK)):
        expected = f"a name in a directory that can be written to; {out.parent} is none"
        problem = Problem("--out", str(out), expected, "make it first, or give another one")
    elif any(out.resolve().is_relative_to(own) for own in (package.resolve(), state_directory(package))):
        expected = f"a directory outside {package} and its state"
        problem = Problem("--out", str(out), expected, "give another one")
    else:
        return
    raise invalid_config([problem], "the command line")


def move_to(new: Path, out: Path) -> Path:
    """Give a complete package its final place, all at once."""
    for path in new.iterdir():
        sync_path(path)
    sync_path(new)
    new.rename(out)
    sync_path(out.parent)
    return out


def tensors_of(network: bytes, shipped: Manifest) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """Return the inputs and the outputs of a slice: those of the shipped network, with scales of its own.

    Args:
        network: Content of its `.tflite` for any batch size.
    """
    session = Session(network, threads=1)
    return (
        tuple(_with_scale(info, session.inputs[info.name]) for info in shipped.inputs),
        tuple(_with_scale(info, session.outputs[info.name]) for info in shipped.outputs),
    )


def _with_scale(info: TensorInfo, described: Any) -> TensorInfo:
    """Return a tensor as LiteRT describes it."""
    scale, zero_point = described["quantization"]
    sizes = zip(info.shape, map(int, described["shape"]), strict=True)
    return info.model_copy(
        update={
            "dtype": np.dtype(described["dtype"]).name,
            "shape": tuple(shipped if shipped == -1 else own for shipped, own in sizes),
            "scale": float(scale) or None,
            "zero_point": int(zero_point) if scale else None,
        }
    )


def _labels(manifest: Manifest, task: AskedTask) -> dict[str, tuple[str, ...]]:
    """Return the names of the classes of each output; the package itself may have others than the task."""
    if not task.classes:
        return manifest.labels
    return {output.name: task.config.classes for output in manifest.outputs}


def _described_files(manifest: Manifest) -> dict[str, PackagedFile]:
    """Return the files that describe inputs and outputs."""
    texts = [own.tokens.vocabulary for own in manifest.preparation.values() if own.tokens is not None]
    return {name: manifest.files[name] for name in (*texts, SOURCE) if name in manifest.files}
