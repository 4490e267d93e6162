"""Customization of a package: a network for a task and limits, cut without training (NN-Factory 3.5)."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.package.factory import FACTORY, AskedTask, FactoryStore
from mistify.package.opened import Package
from mistify.parsing.quantities import Quantity, format_bytes, format_time
from mistify.wording import listed
from mistify_client.assembly.ladder import SLICES
from mistify_client.examples import Examples, read_arrays
from mistify_client.files import damage_reported, held_alone, staging
from mistify_client.runtime.versions import current, install, state_directory
from mistify_client.slicing.latencies import SECONDS
from mistify_client.slicing.making import Measurement, SliceMaker
from mistify_client.slicing.packages import (
    check_place,
    complete_package,
    move_to,
    slice_manifest,
)
from mistify_client.slicing.search import MadeSlice, SliceLimits


@dataclass(frozen=True)
class SliceRequest:
    """A request for a slice.

    Attributes:
        task: Properties or classes, as a list or with commas between them, or the name of a listed task.
        latency: Milliseconds of one inference, or a multiple of the whole network's; None for any number.
        memory: Bytes of constants and activations, or a multiple of the whole network's; None for any number.
        limit: The largest share of units that may be open.
        data: A file for `read_arrays`, with answers to the task, by which slices are compared; None for the
            scores of trained tasks.
    """

    task: str | Sequence[str]
    latency: Quantity | None = None
    memory: Quantity | None = None
    limit: float = 1.0
    data: Path | None = None


@dataclass(frozen=True)
class Customization:
    """The result of customizing a package.

    Attributes:
        task: The task that it is for.
        made: The slice.
        limits: Milliseconds and bytes that were allowed.
        share: The share of units that are open.
        examples: Number of the device's examples behind its quality; 0 for an expected one.
        note: The source of its quality figure.
        directory: Its version of the package, or its package.
    """

    task: AskedTask
    made: MadeSlice
    limits: SliceLimits
    share: float
    examples: int
    note: str
    directory: Path


def factory_of(package: Path) -> tuple[Package, FactoryStore]:
    """Return the version of a package that has a factory, and its description.

    It is the current version, if that has one; slices have none.

    Args:
        package: The directory of the package that was shipped.

    Raises:
        MistifyError: NOT_FOUND, there is no package, or no version of it has a factory; STORE_VERSION, a
            newer version of Mistify wrote it; CORRUPT_PACKAGE, a manifest, or the description of the factory,
            is missing or damaged.
    """
    shipped = Package.open(package)
    if (directory := current(package)) != package and not _is_slice(latest := Package.open(directory)):
        shipped = latest
    return shipped, FactoryStore.of(shipped)


def _is_slice(version: Package) -> bool:
    """Check whether a version was cut for a task, here or on the server, and cannot make other slices."""
    return version.manifest.task is not None and FACTORY not in version.manifest.files


def customize(
    package: Path,
    request: SliceRequest,
    *,
    out: Path | None = None,
    threads: int | None = None,
    seconds: float = SECONDS,
    on_progress: Callable[[str], None] = lambda line: None,
) -> Customization:
    """Cut the best slice for a task out of a package's network, and install it as the current version.

    A few slices are measured once; their latencies are kept in `PACKAGE.state/slices/`, unless that cannot be
    written. The slice is measured before anything else changes, so that it keeps the limits. Whenever the
    process ends, a complete version is current: the old or the new one.

    Args:
        package: The directory of the package that was shipped.
        out: A directory for a package of the slice's own, which need not share the device with other tasks;
            None to install it.
        threads: Number of threads of LiteRT; None for the number that the package was measured with.
        seconds: Time of measuring each slice.
        on_progress: Called with a line before each step that takes long.

    Raises:
        MistifyError: NOT_FOUND, there is no package, or it has no assembler; STORE_VERSION, a newer version
            of Mistify wrote it; INVALID_CONFIG, there is no such task, or no slice is small enough;
            INVALID_DATASET, the data do not fit; CONFLICT, another process customizes the package, or
            installed a version meanwhile; CORRUPT_PACKAGE, a file is damaged.
        OSError: A file cannot be written.
    """
    version, store = factory_of(package)
    before = current(package)
    task = store.asked(request.task, "--task")
    _check_limit(request.limit, store)
    examples = None if request.data is None else _examples(request.data, version, store, task)
    check_place(out, package, other_outputs=bool(task.classes))
    state = state_directory(package)
    with damage_reported(state), unusable_reported(version), _workplace(state, out) as directory:
        measurement = Measurement(
            directory, threads or version.manifest.latency.threads, seconds, on_progress
        )
        place = directory / "installing" if out is None else out.with_name(f".{out.name}.part")
        with staging(place) as new:
            maker = SliceMaker(version, store, measurement, new)
            made, limits = _best(maker, task, request, examples)
            count = 0 if examples is None else len(examples)
            note = _note(task, count)
            manifest = slice_manifest(version.manifest, made, task, limits, examples=count, note=note)
            complete_package(version, manifest, new)
            done = install(package, new, expected=before) if out is None else move_to(new, out)
    share = sum(made.candidate.widths) / sum(group.units for group in store.groups)
    return Customization(task, made, limits, share, count, note, done)


@contextmanager
def unusable_reported(version: Package) -> Iterator[None]:
    """Report networks that cannot be cut as described, or that LiteRT refuses, as damage.

    Args:
        version: The version with the factory.

    Raises:
        MistifyError: CORRUPT_PACKAGE.
    """
    try:
        yield
    except (ValueError, RuntimeError) as error:
        message = f"the factory of {version.directory} cannot be used: {error}"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message) from error


@contextmanager
def _workplace(state: Path, out: Path | None) -> Iterator[Path]:
    """Yield the directory of measurements: that of slices, or a temporary one beside a package of its own.

    The latter is for packages that lie where nothing can be written, such as in the image of a system.
    """
    if out is None or _is_writable(state):
        with slices_held(state) as directory:
            yield directory
    else:
        with staging(out.with_name(f".{out.name}.{SLICES}")) as directory:
            yield directory


def _is_writable(state: Path) -> bool:
    """Check whether the directory of slices in a state directory can be written, or be made."""
    directory = state / SLICES
    existing = next(place for place in (directory, *directory.parents) if place.exists())
    return os.access(existing, os.W_OK)


@contextmanager
def slices_held(state: Path) -> Iterator[Path]:
    """Hold the directory of slices in a state directory for this process alone; make it if it is missing.

    Raises:
        MistifyError: CONFLICT, another process holds it.
    """
    directory = state / SLICES
    directory.mkdir(parents=True, exist_ok=True)
    with held_alone(directory, "the package is already being customized"):
        yield directory


def _best(
    maker: SliceMaker, task: AskedTask, request: SliceRequest, examples: Examples | None
) -> tuple[MadeSlice, SliceLimits]:
    """Return the best slice for a request, and the limits that it keeps.

    Raises:
        MistifyError: INVALID_CONFIG, no slice keeps them.
    """
    slices = maker.candidates(task, request.limit, examples)
    table = None if request.latency is None else maker.latencies()
    widths = [one.widths for one in slices]
    predicted_ms = table.predicted_ms(widths).tolist() if table else [1.0] * len(slices)
    limits = SliceLimits(
        request.latency.resolve(table.whole_ms) if request.latency and table else None,
        request.memory.resolve(maker.whole_memory_bytes) if request.memory else None,
    )
    made = maker.best(limits, dict(zip(slices, predicted_ms, strict=True)))
    if not made.fits(limits):
        raise _out_of_reach(task, request, limits, made)
    return made, limits


def _examples(data: Path, version: Package, store: FactoryStore, task: AskedTask) -> Examples:
    """Return the examples in a file; classes are numbered as those of the task."""
    manifest = version.manifest
    kinds = {info.name: store.kind_of(info) for info in manifest.outputs}
    outputs = [
        info.model_copy(update={"shape": (*info.shape[:-1], len(task.classes))}) if task.classes else info
        for info in manifest.outputs
    ]
    return read_arrays(data, manifest.inputs, outputs, kinds)


def _check_limit(limit: float, store: FactoryStore) -> None:
    least = store.quality.limits[0]
    if not least <= limit <= 1:
        problem = Problem("--limit", f"{limit:.12g}", f"a share from {least:g} to 1", "correct it")
        raise invalid_config([problem], "the command line")


def _note(task: AskedTask, examples: int) -> str:
    """Return where the quality of a slice comes from."""
    if examples:
        return ""
    if task.trained:
        return "accuracy is expected, by tasks on the server's data; not measured here"
    nearest = listed([f'"{one}"' for one in task.nearest])
    return (
        f'never trained: "{task}"; nearest trained tasks: {nearest}; accuracy is expected, by those tasks; '
        "not measured"
    )


def _out_of_reach(task: AskedTask, request: SliceRequest, limits: SliceLimits, made: MadeSlice) -> Exception:
    """Return the error of limits that even the smallest slice exceeds."""
    asked = (
        ("--latency", request.latency, limits.latency_ms, made.latency.median_ms, format_time),
        ("--memory", request.memory, limits.memory_bytes, made.memory_bytes, format_bytes),
    )
    problems = [
        Problem(
            option,
            f"{show(quantity)} ({show(limit, 3)})" if quantity.relative else show(quantity),
            f"at least {show(least, 3)}, which the smallest slice for {task} takes here",
            "allow more",
        )
        for option, quantity, limit, least, show in asked
        if quantity is not None and limit is not None and least > limit
    ]
    return invalid_config(problems, "the command line")
