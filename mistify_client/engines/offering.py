"""Offering engines for the networks of a package on this device (CrowdHMTware III-C)."""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.machine import machine, runtime
from mistify.package.opened import Package
from mistify.package.option_kinds import OptionKind, option_id
from mistify.processors import usable_processors
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.engine_table import ENGINES, WEIGHTS, EngineTable, MeasuredEngine
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.paged_engines import EngineFiles
from mistify_client.assembly.pool import SubnetPool
from mistify_client.engines.measuring import SECONDS, measured_engines
from mistify_client.engines.subnets import measured_entries
from mistify_client.files import damage_reported, held_alone
from mistify_client.runtime.options import PackageOptions, options_of
from mistify_client.runtime.version_options import install_options
from mistify_client.runtime.versions import open_current, state_directory

#: Figure -> the share by which an engine has to be better than that of the package, so that noise does not
#: decide. Starts scatter more, because each is measured only once per process.
_BETTER: Final = {"latency_ms": 0.05, "memory_bytes": 0.05, "start_ms": 0.2}


class Offer(NamedTuple):
    """An engine that was measured.

    Attributes:
        option: Id of the option with this engine; None if it is not offered.
    """

    option: str | None
    measured: MeasuredEngine


def offer_engines(
    package: Path, threads: Iterable[int] | None = None, seconds: float = SECONDS
) -> list[Offer]:
    """Measure engines for the network of a package, or its subnets, and make the best ones its options.

    The own engine remains. Others are offered if none is better in latency, memory or start. Whenever the
    process ends, the package has either these options or those before.

    Args:
        package: The directory of the shipped package.
        threads: The numbers of threads to try with the network of a package; 1, 2, 4 and so on by default.
            Subnets have that with which they were found.
        seconds: Measuring time per engine.

    Returns:
        All engines that were measured.

    Raises:
        MistifyError: NOT_FOUND, the package has other options; CONFLICT, its engines are being measured, or
            another version has become current; CORRUPT_PACKAGE, a file is damaged; INVALID_CONFIG, threads
            are given for a package with subnets.
        OSError: A file cannot be written.
    """
    version, state = open_current(package), state_directory(package)
    with damage_reported(state):
        options = options_of(version, state)
        _check_options(version, options)
        (state / ENGINES).mkdir(parents=True, exist_ok=True)
        with held_alone(state / ENGINES, "engines of the package are already being measured"):
            version.verify(with_blocks=False)
            if options.pool is not None:
                _check_threads(threads, options.pool)
                return _offer_to_subnets(package, version, options.pool, seconds)
            return _offer_to_network(
                package, version, _default_threads() if threads is None else threads, seconds
            )


def _offer_to_network(package: Path, version: Package, threads: Iterable[int], seconds: float) -> list[Offer]:
    own = Engine(threads=version.manifest.latency.threads)
    engines = list(dict.fromkeys((own, *_candidates(threads))))
    files = EngineFiles.of(version, state_directory(package) / WEIGHTS)
    measured = measured_engines(files, engines, seconds)
    table = EngineTable(
        package=version.digest, machine=machine(), runtime=runtime(), engines=tuple(best_engines(measured))
    )
    options = dict(
        zip(install_options(package, table, expected=version.directory).engines, table.ids, strict=True)
    )
    return [Offer(options.get(one), one) for one in measured]


def _offer_to_subnets(package: Path, version: Package, pool: SubnetPool, seconds: float) -> list[Offer]:
    measured = list(measured_entries(version, pool, seconds, best_engines))
    entries = tuple(one.entry for one in measured if one.is_offered)
    install_options(package, pool.model_copy(update={"entries": entries}), expected=version.directory)
    places = (option_id(OptionKind.SUBNET, place) for place in range(len(entries)))
    return [Offer(next(places) if one.is_offered else None, one.measured) for one in measured]


def best_engines(measured: Sequence[MeasuredEngine]) -> list[MeasuredEngine]:
    """Return the first engine, followed by the best one for each figure unless the first one is as good."""
    own, best = measured[0], [measured[0]]
    for figure, share in _BETTER.items():
        known = [one for one in measured if getattr(one, figure) is not None]
        if own not in known:
            continue
        least = min(known, key=attrgetter(figure))
        if getattr(least, figure) < (1 - share) * getattr(own, figure) and least not in best:
            best.append(least)
    return best


def _candidates(threads: Iterable[int]) -> Iterator[Engine]:
    for count in threads:
        yield Engine(threads=count)
        yield Engine(execution=Execution.COMPILED, threads=count, mapped_weights=True)


def _default_threads() -> list[int]:
    """Return 1, 2, 4 and so on, up to the number of processors that this process may use."""
    return [2**power for power in range(usable_processors().bit_length())]


def _check_threads(threads: Iterable[int] | None, pool: SubnetPool) -> None:
    """Check that no threads are given for subnets.

    Raises:
        MistifyError: INVALID_CONFIG, they are.
    """
    if threads is not None:
        expected = f"nothing: its subnets were measured with {pool.entries[0].engine.threads}"
        fix = "leave it out, or give it to mistify adapt"
        problem = Problem("--threads", ",".join(map(str, threads)), expected, fix)
        raise invalid_config([problem], "the command line")


def _check_options(version: Package, options: PackageOptions) -> None:
    """Check that a version has a single network or subnets, and no other options.

    Raises:
        MistifyError: NOT_FOUND, it has.
    """
    if options.ladder is not None:
        reason = "slices, which are its options"
    elif version.manifest.branches:
        reason = "branches, which are its options"
    elif options.exits is not None:
        reason = "exits, which are its options"
    else:
        return
    raise MistifyError(ErrorCode.NOT_FOUND, f"{version.directory} has {reason}: it gets no other engines")
