"""Whether a package from the server is fit to take the place of the one in use: tried on this device."""

import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.manifest import Manifest, TensorInfo, verify
from mistify_client.monitor.sensing.costs import expected_costs
from mistify_client.runtime.execution import best_execution
from mistify_client.runtime.inputs import Array, bind, checked
from mistify_client.runtime.interpreter import Network, open_network
from mistify_client.runtime.versions import check_interchangeable, current, state_directory

#: Calls of each network while they are compared.
_RUNS: Final = 30
_RANDOM_EXAMPLES: Final = 16

#: Figures agree that differ by less than this share of the largest one.
_TOLERANCE: Final = 0.1


@dataclass(frozen=True)
class Trial:
    """What a candidate was found to do: its latency and that of the package in use, under equal conditions.

    `agreement` is the share of the examples on which both say the same; None where there were no examples.
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

    Of a package with branches the candidate's default runs, which is the goal's own network, and the
    fastest of the package in use. Both run in the way
    that was found best for the package, and take turns, so that what else the device does meets both.

    Args:
        candidate: the directory of the new package.
        package: the directory of the package that was shipped; its current version is in use.
        examples: `.npz` with an array for each input; random inputs are run where there is none.
        clock: in seconds.

    Raises:
        MistifyError: CORRUPT_PACKAGE or INVALID_MODEL: the candidate is damaged, cannot be run, or gives
            numbers that are not finite; INVALID_DATASET: the examples do not fit.
    """
    running = current(package)
    new_manifest, old_manifest = verify(candidate), verify(running)
    check_interchangeable(old_manifest, new_manifest, candidate)
    values = _random(old_manifest.inputs) if examples is None else read_examples(examples, old_manifest)
    open_old = partial(open_network, running, old_manifest)
    execution = best_execution(state_directory(package), old_manifest, open_old)
    new, old = open_network(candidate, new_manifest, execution), open_old(execution)
    said = answers(new, values)
    if not all(np.isfinite(output).all() for output in said.values()):
        raise MistifyError(ErrorCode.INVALID_MODEL, f"{candidate} gives outputs that are not finite")
    agreement = None if examples is None else agreeing(said, answers(old, values))
    single = next(_singles(values))
    new_single, old_single = _bound(new, single), _bound(old, single)
    new_ms, old_ms = _alternating(
        lambda: new(new_single, new_manifest.default_branch),
        lambda: old(old_single, _fastest(old_manifest)),
        clock,
    )
    return Trial(new_ms, old_ms, agreement)


def read_examples(path: Path, package: Manifest) -> dict[str, Array]:
    """The examples in a file, by the names of the inputs.

    Raises:
        MistifyError: INVALID_DATASET, the file has no arrays, or others than the network takes.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            values = dict(arrays)
    except (OSError, ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        problem = Problem(str(path), str(error), "an .npz file with an array for each input", "write it anew")
        raise MistifyError(ErrorCode.INVALID_DATASET, f"{path} cannot be used", [problem]) from error
    try:
        return checked(package.inputs, (), values)
    except MistifyError as error:
        raise MistifyError(error.code, f"{path} does not fit the network", error.problems) from error


def answers(network: Network, examples: Mapping[str, Array]) -> dict[str, Array]:
    """What the default branch says of examples, as values.

    They run one by one: beside an app a device has no memory to spare, and none is allocated for that.
    """
    outputs, branch = network.manifest.outputs, network.manifest.default_branch
    found = [network(_bound(network, single), branch) for single in _singles(examples)]
    return {
        info.name: info.dequantized(np.concatenate([each[info.name] for each in found])) for info in outputs
    }


def agreeing(some: Mapping[str, Array], others: Mapping[str, Array]) -> float:
    """The share of examples on which all outputs agree: their classes, or figures where there is only one."""
    agreed = [_same(some[name], others[name]) for name in some]
    return float(np.mean(np.logical_and.reduce(agreed)))


def _same(some: Array, others: Array) -> Array:
    if some.ndim > 1 and some.shape[-1] > 1:
        same = some.argmax(axis=-1) == others.argmax(axis=-1)
    else:
        same = np.abs(some - others) <= _TOLERANCE * max(float(np.abs(others).max()), 1e-12)
    whole: Array = same.reshape(len(same), -1).all(axis=1)
    return whole


def _fastest(package: Manifest) -> int:
    expected = [costs.latency_ms for costs in expected_costs(package)]
    return expected.index(min(expected))


def _random(inputs: Sequence[TensorInfo]) -> dict[str, Array]:
    """Values that any network takes; integers may be indices, and are 0 and 1."""
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
    """The median milliseconds of each."""
    taken: tuple[list[float], list[float]] = [], []
    for _ in range(_RUNS):
        for run, seconds in zip((first, second), taken, strict=True):
            start = clock()
            run()
            seconds.append(clock() - start)
    return 1000 * median(taken[0]), 1000 * median(taken[1])
