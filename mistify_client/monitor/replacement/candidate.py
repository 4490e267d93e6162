"""Trial of a new package on this device, beside the one in use that it may replace."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest, TensorInfo
from mistify.package.opened import Package
from mistify.package.option_kinds import OptionKind
from mistify_client.assembly.paging import Blocks, PagedNetwork
from mistify_client.examples import checked_inputs, read_npz
from mistify_client.runtime.inputs import Array, bind
from mistify_client.runtime.interpreter import Network, open_network
from mistify_client.runtime.options import options_of
from mistify_client.runtime.paged import chosen_blocks
from mistify_client.runtime.versions import check_interchangeable, open_current, state_directory

#: Calls of each network while they are compared.
_RUNS: Final = 30
_RANDOM_EXAMPLES: Final = 16

#: Numbers agree if they differ by at most this share of the largest one.
_TOLERANCE: Final = 0.1


@dataclass(frozen=True)
class Trial:
    """Result of a trial, in which both packages ran under equal conditions.

    Attributes:
        candidate_ms: Median milliseconds of an inference of the candidate.
        running_ms: The same of the package in use.
        agreement: Share of the examples, 0 to 1, on which both packages agree; None without examples.
    """

    candidate_ms: float
    running_ms: float
    agreement: float | None


def try_candidate(
    candidate: Path,
    package: Path,
    examples: Path | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Trial:
    """Verify a candidate, run it beside the package in use, and compare them.

    The candidate runs its default branch, which is the network of the goal; the package in use runs its
    fastest option. Both run with the threads that they were measured with, as an app runs them, and take
    turns, so that other load on the device affects both alike.

    Args:
        candidate: The directory of the new package.
        package: The directory of the package that was shipped; its current version is in use.
        examples: `.npz` file with an array for each input; None for random inputs.
        clock: The clock that inferences are measured with, in seconds.

    Returns:
        Latencies and agreement of both packages.

    Raises:
        MistifyError: CORRUPT_PACKAGE or INVALID_MODEL: the candidate is damaged, cannot be run, or has
            outputs that are not finite; INVALID_DATASET: the examples do not fit.
    """
    replacing, running = Package.open(candidate), open_current(package)
    for each in (replacing, running):
        each.verify()
    new_manifest, old_manifest = replacing.manifest, running.manifest
    check_interchangeable(old_manifest, new_manifest, candidate)
    values = (
        _random_inputs(old_manifest.inputs) if examples is None else read_examples(examples, old_manifest)
    )
    new = open_network(replacing, new_manifest.latency.threads)
    old = open_network(running, old_manifest.latency.threads)
    outputs = compute_outputs(new, values)
    if not all(np.isfinite(output).all() for output in outputs.values()):
        raise MistifyError(ErrorCode.INVALID_MODEL, f"{candidate} gives outputs that are not finite")
    agreement = None if examples is None else share_of_agreement(outputs, compute_outputs(old, values))
    single = next(_singles(values))
    new_single, old_single = _bound(new, single), _bound(old, single)
    new_ms, old_ms = _alternating(
        lambda: new(new_single, new_manifest.default_branch),
        _fastest(old, running, state_directory(package), old_single),
        clock,
    )
    return Trial(new_ms, old_ms, agreement)


def read_examples(path: Path, package: Manifest) -> dict[str, Array]:
    """Return the examples in a file.

    Args:
        path: `.npz` file with an array for each input.
        package: Manifest of the package whose inputs the examples have to fit.

    Returns:
        Arrays by the names of the inputs, whose first axis counts the examples.

    Raises:
        MistifyError: INVALID_DATASET, the file has no arrays, or they do not fit the inputs.
    """
    return checked_inputs(read_npz(path), package.inputs, path)


def compute_outputs(network: Network, examples: Mapping[str, Array]) -> dict[str, Array]:
    """Run the default branch on examples, one at a time, and return its dequantized outputs.

    A batch of all examples would need more memory than a device can spare beside an app.

    Args:
        network: The network to run.
        examples: Arrays of shape (examples, ...) by the names of the inputs.

    Returns:
        Arrays of shape (examples, ...) by the names of the outputs.
    """
    infos, branch = network.manifest.outputs, network.manifest.default_branch
    results = [network(_bound(network, single), branch) for single in _singles(examples)]
    return {
        info.name: info.dequantized(np.concatenate([each[info.name] for each in results])) for info in infos
    }


def share_of_agreement(new: Mapping[str, Array], old: Mapping[str, Array]) -> float:
    """Return the share of examples, 0 to 1, on which all outputs of two networks agree.

    Outputs with several values along the last axis agree if their largest values are at the same place, as
    for scores of classes. Single numbers agree if they are close, relative to the largest of `old`.

    Args:
        new: Arrays of shape (examples, ...) by the names of the outputs.
        old: The same of the other network.
    """
    agreements = [_agreements(new[name], old[name]) for name in new]
    return float(np.mean(np.logical_and.reduce(agreements)))


def _agreements(new: Array, old: Array) -> Array:
    """Return for each example whether one output agrees, as an array of shape (examples,)."""
    if new.ndim > 1 and new.shape[-1] > 1:
        equal = new.argmax(axis=-1) == old.argmax(axis=-1)
    else:
        equal = np.abs(new - old) <= _TOLERANCE * max(float(np.abs(old).max()), 1e-12)
    per_example: Array = equal.reshape(len(equal), -1).all(axis=1)
    return per_example


def _fastest(
    network: Network, package: Package, state: Path, values: Mapping[str, Array]
) -> Callable[[], object]:
    """Return a function that runs the fastest option of a package on its inputs, by name."""
    options = options_of(package, state)
    fastest = options.options[options.fastest]
    if fastest.kind is OptionKind.BRANCH:
        return partial(network, values, options.fastest)
    blocks, threads = Blocks.of(package, state), fastest.engine.threads
    return partial(PagedNetwork(blocks, chosen_blocks(fastest), threads), values)


def _random_inputs(inputs: Sequence[TensorInfo]) -> dict[str, Array]:
    """Return inputs that any network accepts; integers are 0 or 1, since they may be indices."""
    random = np.random.default_rng(0)
    values: dict[str, Array] = {}
    for info in inputs:
        shape = (_RANDOM_EXAMPLES, *info.shape[1:])
        if info.scale is None and np.issubdtype(np.dtype(info.dtype), np.integer):
            values[info.name] = random.integers(0, 2, shape).astype(info.dtype)
        else:
            values[info.name] = random.normal(size=shape).astype(np.float32)
    return values


def _bound(network: Network, values: Mapping[str, Array]) -> dict[str, Array]:
    return bind(network.manifest.inputs, (), values)


def _singles(examples: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    for row in range(len(next(iter(examples.values())))):
        yield {name: array[row : row + 1] for name, array in examples.items()}


def _alternating(
    first: Callable[[], object], second: Callable[[], object], clock: Callable[[], float]
) -> tuple[float, float]:
    """Run two functions in turn and return the median milliseconds of each."""
    durations: tuple[list[float], list[float]] = [], []
    for _ in range(_RUNS):
        for run, seconds in zip((first, second), durations, strict=True):
            start = clock()
            run()
            seconds.append(clock() - start)
    return 1000 * median(durations[0]), 1000 * median(durations[1])
