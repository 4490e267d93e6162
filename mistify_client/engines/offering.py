"""Offering engines for the network of a package on this device (CrowdHMTware III-C)."""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.machine import machine, runtime
from mistify.package.opened import Package
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.engine_table import ENGINES, WEIGHTS, EngineTable, MeasuredEngine
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.paged_engines import EngineFiles
from mistify_client.engines.measuring import SECONDS, measured_engines
from mistify_client.files import damage_reported, held_alone
from mistify_client.runtime.options import options_of
from mistify_client.runtime.versions import install_options, open_current, state_directory

#: Figure -> the share by which an engine has to be better than that of the package, so that noise does not
#: decide. Starts scatter more, because each is measured only once per process.
_BETTER: Final = {"latency_ms": 0.05, "memory_bytes": 0.05, "start_ms": 0.2}


def offer_engines(
    package: Path, threads: Iterable[int], seconds: float = SECONDS
) -> tuple[EngineTable, list[MeasuredEngine]]:
    """Measure engines for the network of a package, and make the best ones its options.

    Its own engine remains, and runs first. Others are offered if none is better in latency, memory or start.
    Whenever the process ends, the package has either these options or those before.

    Args:
        package: The directory of the shipped package.
        threads: The numbers of threads to try.
        seconds: Measuring time per engine.

    Returns:
        The table that was installed, and all engines that were measured.

    Raises:
        MistifyError: NOT_FOUND, the package has other options; CONFLICT, its engines are being measured, or
            another version has become current; CORRUPT_PACKAGE, a file is damaged.
        OSError: A file cannot be written.
    """
    version, state = open_current(package), state_directory(package)
    with damage_reported(state):
        _check_options(version, state)
        (state / ENGINES).mkdir(parents=True, exist_ok=True)
        with held_alone(state / ENGINES, "engines of the package are already being measured"):
            version.verify(with_blocks=False)
            own = Engine(threads=version.manifest.latency.threads)
            engines = list(dict.fromkeys((own, *_candidates(threads))))
            measured = measured_engines(EngineFiles(version, state / WEIGHTS), engines, seconds)
            table = EngineTable(
                package=version.digest,
                machine=machine(),
                runtime=runtime(),
                engines=tuple(best_engines(measured)),
            )
            return install_options(package, table, expected=version.directory), measured


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


def _check_options(version: Package, state: Path) -> None:
    """Check that a version has a single network and no other options.

    Raises:
        MistifyError: NOT_FOUND, it has.
    """
    options = options_of(version, state)
    if options.pool is not None or options.ladder is not None:
        reason = "options that were made on this device; remove them first"
    elif version.manifest.branches:
        reason = "branches, which are its options"
    elif options.exits is not None:
        reason = "exits, which are its options"
    else:
        return
    raise MistifyError(ErrorCode.NOT_FOUND, f"{version.directory} has {reason}: it gets no other engines")
