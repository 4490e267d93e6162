"""Trial of a new package on this device, next to the current package that it may replace."""

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
from mistify.tflite.resizable import resizable
from mistify_client.assembly.paging import Blocks, PagedNetwork
from mistify_client.examples import checked_inputs, read_npz
from mistify_client.runtime.inputs import Array, bind
from mistify_client.runtime.interchangeable import check_interchangeable
from mistify_client.runtime.interpreter import Network, open_network
from mistify_client.runtime.options import options_of
from mistify_client.runtime.paged import chosen_blocks
from mistify_client.runtime.versions import open_current, shipped_package, state_directory
from mistify_client.slicing.cutting import cut_slice

#: Number of inferences of each network in a comparison.
_RUNS: Final = 30
_RANDOM_EXAMPLES: Final = 16

#: Maximum difference of numbers that agree, as a share of the largest one.
_TOLERANCE: Final = 0.1


@dataclass(frozen=True)
class Trial:
    """Result of a trial in which both packages ran under the same conditions.

    Attributes:
        candidate_ms: Median latency of the candidate in milliseconds.
        running_ms: The same for the current package.
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
    """Verify a candidate, run it next to the current package, and compare them.

    The candidate runs its default branch, which is the network of the goal; the current package runs its
    fastest option. Both run with the numbers of threads that they were measured with, as in an app, and
    alternate, so that other load on the device affects both equally.

    Args:
        candidate: The directory of the new package.
        package: The directory of the shipped package; its current version is compared.
        examples: `.npz` file with an array for each input; None for random inputs.
        clock: The clock for measuring inferences, in seconds.

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
        package: Manifest of the package, with the inputs that the examples have to fit.

    Returns:
        Input name -> array, with examples along the first axis.

    Raises:
        MistifyError: INVALID_DATASET, the file has no arrays, or they do not fit the inputs.
    """
    return checked_inputs(read_npz(path), package.inputs, path)


def compute_outputs(network: Network, examples: Mapping[str, Array]) -> dict[str, Array]:
    """Run the default branch on examples, one at a time, and return its dequantized outputs.

    A batch of all examples would need more memory than a device can spare while an app runs.

    Args:
        network: The network to run.
        examples: Input name -> array of shape (examples, ...).

    Returns:
        Output name -> array of shape (examples, ...).
    """
    infos, branch = network.manifest.outputs, network.manifest.default_branch
    results = [network(_bound(network, single), branch) for single in _singles(examples)]
    return {
        info.name: info.dequantized(np.concatenate([each[info.name] for each in results])) for info in infos
    }


def share_of_agreement(new: Mapping[str, Array], old: Mapping[str, Array]) -> float:
    """Return the share of examples, 0 to 1, on which all outputs of two networks agree.

    Outputs with several values along the last axis agree if their largest values are at the same index, as
    for class scores. Single numbers agree if they are close, relative to the largest one in `old`.

    Args:
        new: Output name -> array of shape (examples, ...).
        old: The same for the other network.
    """
    agreements = [_agreements(new[name], old[name]) for name in new]
    return float(np.mean(np.logical_and.reduce(agreements)))


def _agreements(new: Array, old: Array) -> Array:
    """Return whether an output agrees, for each example, as an array of shape (examples,)."""
    if new.ndim > 1 and new.shape[-1] > 1:
        equal = new.argmax(axis=-1) == old.argmax(axis=-1)
    else:
        equal = np.abs(new - old) <= _TOLERANCE * max(float(np.abs(old).max()), 1e-12)
    per_example: Array = equal.reshape(len(equal), -1).all(axis=1)
    return per_example


def _fastest(
    network: Network, package: Package, state: Path, values: Mapping[str, Array]
) -> Callable[[], object]:
    """Return a function that runs the fastest option of a package on the given inputs.

    Exits do not count: random inputs do not show how often they answer.
    """
    options = options_of(package, state)
    whole = [option for option in options.options if option.kind is not OptionKind.EXIT]
    fastest = min(whole, key=lambda option: option.costs.latency_ms)
    if fastest.kind is OptionKind.BRANCH:
        return partial(network, values, options.place_of(fastest.id))
    if options.ladder is not None and (rung := options.ladder.rung(fastest.id)) is not None:
        content = cut_slice(shipped_package(state), rung)
        return partial(Network(package.manifest, resizable(content), fastest.engine.threads), values, 0)
    blocks, threads = Blocks.of(package, state), fastest.engine.threads
    return partial(PagedNetwork(blocks, chosen_blocks(fastest), threads), values)


def _random_inputs(inputs: Sequence[TensorInfo]) -> dict[str, Array]:
    """Return inputs that any network accepts; integers are 0 or 1, because they may be indices."""
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
    """Run two functions alternately and return the median milliseconds of each."""
    durations: tuple[list[float], list[float]] = [], []
    for _ in range(_RUNS):
        for run, seconds in zip((first, second), durations, strict=True):
            start = clock()
            run()
            seconds.append(clock() - start)
    return 1000 * median(durations[0]), 1000 * median(durations[1])
