"""Adaptation of a package on a device: measure blocks, search, choose the best subnet (AdaptiveNet 5)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BlockStore
from mistify.package.manifest import NETWORK
from mistify.package.opened import Package
from mistify.parsing.quantities import Quantity, format_time
from mistify.wording import counted
from mistify_client.assembly.pool import PoolEntry, SubnetPool
from mistify_client.assembly.shipped import blocks_of, with_shipped
from mistify_client.examples import Examples, read_arrays, with_whole_answers
from mistify_client.files import damage_reported, held_alone
from mistify_client.runtime.version_options import install_options
from mistify_client.runtime.versions import open_current, state_directory
from mistify_client.subnets.block_downloads import BlockDownloads, promising
from mistify_client.subnets.block_latencies import SECONDS, LatencyTable, latency_table
from mistify_client.subnets.scoring.reuse import GroupEvaluation
from mistify_client.subnets.scoring.scores import SubnetScorer
from mistify_client.subnets.search.additive import fastest
from mistify_client.subnets.search.candidates import Candidate, best_entries
from mistify_client.subnets.search.strategies import Strategy, search
from mistify_client.subnets.space import SubnetSpace
from mistify_client.subnets.worthwhile import worthwhile

#: Name of the directory of latency tables in the state directory.
TABLES: Final = "subnets"

#: With fewer examples, a warning is shown.
_FEW_EXAMPLES: Final = 30

#: Maximum number of examples for scoring subnets; from larger data, a sample is drawn.
MOST_EXAMPLES: Final = 1_000


@dataclass(frozen=True)
class AdaptationResult:
    """The result of an adaptation.

    Attributes:
        package: The adapted version.
        chosen: The subnet that runs next.
        pool: The best subnets for all budgets.
        scored: Number of scored subnets.
        runs: Number of runs of a block on a batch for scoring.
        saved: Number of such runs that were saved.
    """

    package: Package
    chosen: PoolEntry
    original: PoolEntry
    pool: SubnetPool
    scored: int
    runs: int
    saved: int


def adapt(
    package: Path,
    data: Path,
    latency: Quantity,
    strategy: Strategy = Strategy.ADDITIVE,
    *,
    threads: int | None = None,
    seconds: float = SECONDS,
    token_file: Path | None = None,
    on_progress: Callable[[str], None] = lambda line: None,
) -> AdaptationResult:
    """Find the most accurate subnet of a package on a device's data within a latency.

    Blocks are measured once; their latencies are stored in `PACKAGE.state/subnets/`. Nothing else changes
    until the end: then the pool is written and announced, its best subnet within the latency runs next, and
    running models switch to it. The package itself never changes, except for downloaded blocks.

    If a package was downloaded without its blocks, the blocks of the original network are downloaded, and
    those that may be useful within the latency. If the latter cannot be downloaded, the available subnets are
    tried.

    Args:
        package: The directory of the shipped package.
        data: A file for `read_arrays`. Without labels, the predictions of the original network are the
            targets.
        latency: Milliseconds, or a multiple of the original network's latency.
        threads: Number of threads of LiteRT; None for the number with which the package was measured.
        seconds: Measuring time per block.
        token_file: The file with the server's access token; None for the one with which the package was
            downloaded.
        on_progress: Called with a line of text before each step.

    Raises:
        MistifyError: NOT_FOUND, there is no package, or it has no blocks; STORE_VERSION, a newer version of
            Mistify wrote it; INVALID_DATASET, the data do not fit; INVALID_CONFIG, no subnet is fast enough,
            or the file with the token cannot be used; CONFLICT, the package is already being adapted, was
            tuned, or got another version in the meantime; CORRUPT_PACKAGE, a block, or the state, cannot be
            used; NO_ROOM, UNAVAILABLE or another error of the server, blocks without which no subnet is fast
            enough cannot be downloaded.
        OSError: A file cannot be written.
    """
    version, state = open_current(package), state_directory(package)
    tables, store = state / TABLES, blocks_of(version)
    _check_untuned(version)
    examples = _examples(data, store)
    with damage_reported(state), _held(tables), BlockFiles(version.directory) as files:
        threads = threads or version.manifest.latency.threads
        measure = partial(
            latency_table, files, state=tables, threads=threads, seconds=seconds, on_progress=on_progress
        )
        downloads = BlockDownloads(files, state, store, token_file, on_progress)
        measured = _measured_space(version, downloads, latency, measure, on_progress)
        space = measured.space
        on_progress(f"searching {counted(space.count, 'subnet')} on {_as_text(examples)}")
        evaluation = GroupEvaluation(files, space.store, measured.table, examples.inputs)
        scorer = SubnetScorer(
            evaluation, space.store, space.original, examples.targets, version.manifest.metric
        )
        candidates = search(space, measured.table, scorer, measured.budget_ms, strategy)
        before = _pool_before(state, version)
        candidates += _rescored_pool(before, measured, scorer, candidates)
        pool = SubnetPool(
            store=version.blocks_digest,
            budget_ms=measured.budget_ms,
            original_ms=candidates[0].latency_ms,
            metric=scorer.metric,
            examples=len(examples),
            data=str(data.resolve()),
            strategy=strategy,
            entries=best_entries(
                _without_copy(candidates, space), scorer.figure, candidates[0], measured.table.engine
            ),
        )
        pool = install_options(package, pool.with_measured(before), expected=version.directory)
    chosen = pool.best() or pool.entries[0]  # the fastest one fits, as checked above
    original = candidates[0].entry(scorer.figure, measured.table.engine)
    return AdaptationResult(
        version, chosen, original, pool, len(candidates), evaluation.runs, evaluation.saved
    )


class _MeasuredSpace(NamedTuple):
    """The subnets of the available blocks, their latencies, and the target latency."""

    space: SubnetSpace
    table: LatencyTable
    budget_ms: float


def _measured_space(
    version: Package,
    downloads: BlockDownloads,
    latency: Quantity,
    measure: Callable[[BlockStore], LatencyTable],
    on_progress: Callable[[str], None],
) -> _MeasuredSpace:
    """Download required and possibly useful blocks; measure them and the shipped network.

    Variants that do not pay are left out.

    Args:
        version: The package's version.
        downloads: Downloads missing blocks.
        latency: The limit given to `adapt`.
        measure: Returns the latencies of the blocks in a store.

    Raises:
        MistifyError: INVALID_CONFIG, no subnet is fast enough, or the file with the token cannot be used;
            CORRUPT_PACKAGE, a block cannot be used; the errors of downloads, required blocks cannot be
            downloaded.
    """

    def measured() -> tuple[SubnetSpace, LatencyTable]:
        space = SubnetSpace(with_shipped(downloads.store, version))
        return space, measure(space.store)

    whole = SubnetSpace(downloads.whole)
    downloads.fetch((*whole.original, *(whole.served or ())))
    space, table = measured()
    budget_ms = latency.resolve(table.latency_ms(whole.original))
    downloads.fetch_if_possible(promising(whole, table, budget_ms))
    space, table = measured()
    if table.latency_ms(fastest(space, table)) > budget_ms:
        downloads.fetch(whole.variants)
        space, table = measured()
    _check_reachable(space, table, latency, budget_ms)
    paying = SubnetSpace(worthwhile(space, table))
    if dropped := len(space.variants) - len(paying.variants):
        on_progress(f"dropping {counted(dropped, 'block')}, no faster here than the original ones")
    return _MeasuredSpace(paying, table, budget_ms)


@contextmanager
def _held(tables: Path) -> Iterator[None]:
    """Create the directory of latency tables if necessary, and lock it for this process."""
    tables.mkdir(parents=True, exist_ok=True)
    with held_alone(tables, "the package is already being adapted"):
        yield


def _examples(data: Path, store: BlockStore) -> Examples:
    """Return the examples in a file; a fixed sample if there are many."""
    kinds = {info.name: store.kind_of(info.name) for info in store.outputs}
    examples = with_whole_answers(
        read_arrays(data, store.inputs, store.outputs, kinds, labels_needed=False), kinds
    )
    if len(examples) <= MOST_EXAMPLES:
        return examples
    return examples.subset(np.sort(np.random.default_rng(0).permutation(len(examples))[:MOST_EXAMPLES]))


def _as_text(examples: Examples) -> str:
    """Return the number of examples as text, with a warning if there are few."""
    doubt = "" if len(examples) >= _FEW_EXAMPLES else ", too few to tell them apart well"
    return f"{counted(len(examples), 'example')}{doubt}"


def _check_untuned(version: Package) -> None:
    """Check that the network of a package still consists of its blocks.

    Raises:
        MistifyError: CONFLICT, it was tuned.
    """
    if version.manifest.tuned_from:
        raise MistifyError(
            ErrorCode.CONFLICT,
            f"{version.directory} was tuned on this device, and its blocks were not; adapt the package as it "
            "was shipped, to which mistify_client.runtime.versions.roll_back returns",
        )


def _pool_before(state: Path, version: Package) -> SubnetPool | None:
    """Return the pool so far; None if there is none, or it is unreadable, so that it is replaced."""
    with suppress(MistifyError):
        return SubnetPool.load(state, version)
    return None


def _rescored_pool(
    pool: SubnetPool | None, measured: _MeasuredSpace, scorer: SubnetScorer, others: Sequence[Candidate]
) -> list[Candidate]:
    """Return the subnets of the old pool that are not in `others`, scored on the current data.

    A search near one budget does not find the best subnets for other budgets.
    """
    with suppress(MistifyError):  # a pool whose blocks are missing is replaced
        there = {one.subnet for one in others}
        kept = dict.fromkeys(entry.files for entry in (pool.entries if pool else ()))
        subnets = [measured.space.store.network_of(files) for files in kept]
        new = [subnet for subnet in subnets if subnet not in there]
        if new:
            scores = scorer(new)
            return [
                Candidate(subnet, measured.table.latency_ms(subnet), score)
                for subnet, score in zip(new, scores, strict=True)
            ]
    return []


def _without_copy(candidates: Sequence[Candidate], space: SubnetSpace) -> list[Candidate]:
    """Leave out the subnet of the shipped network's blocks if the shipped network itself was scored.

    Once stitched, both take equally long, so the choice would be random; and the shipped one needs no
    stitching.
    """
    shipped = any(block.file == NETWORK for one in candidates for block in one.subnet)
    return [one for one in candidates if not (shipped and one.subnet == space.served)]


def _check_reachable(space: SubnetSpace, table: LatencyTable, latency: Quantity, budget_ms: float) -> None:
    """Check that a subnet is fast enough.

    Raises:
        MistifyError: INVALID_CONFIG, none is.
    """
    least_ms = table.latency_ms(fastest(space, table))
    if least_ms > budget_ms:
        value = format_time(latency)
        if latency.relative:
            value += f" ({format_time(budget_ms, 3)})"
        expected = f"at least {format_time(least_ms, 3)}, which the fastest subnet takes on this device"
        problem = Problem("--latency", value, expected, "allow more")
        raise invalid_config([problem], "the command line")
