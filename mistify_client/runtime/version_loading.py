"""Loading a version of a package into memory, with the option that a monitor has chosen."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mistify.errors import ErrorCode, MistifyError
from mistify.package.exits import EXIT_STAGES
from mistify.package.manifest import NETWORK
from mistify.package.opened import Package
from mistify_client.runtime.exits import with_exits
from mistify_client.runtime.interpreter import open_network
from mistify_client.runtime.loaded import LoadedVersion, Runnable
from mistify_client.runtime.options import PackageOptions, options_of
from mistify_client.runtime.paged import open_paged
from mistify_client.runtime.served_task import ServedTask
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.trust import Trust, check_trusted
from mistify_client.runtime.version_options import read_consistently
from mistify_client.runtime.versions import current

if TYPE_CHECKING:  # at run time, only apps with helpers need it
    from mistify_client.lending.config import LendingConfig

logger = logging.getLogger(__name__)


class LoadSettings(NamedTuple):
    """The settings with which every version of a package is loaded.

    Attributes:
        threads: Number of threads of LiteRT; None for the number that the version was measured with.
        task: The task that each version has to serve; None for any.
        lending: The helpers that may run blocks; None for this device alone.
        trust: The keys by which each version has to be signed, unless this device has made it; None for any.
    """

    threads: int | None = None
    task: ServedTask | None = None
    lending: "LendingConfig | None" = None
    trust: Trust | None = None


def load_current(
    package: Path,
    state: Path,
    switchboard: Switchboard,
    settings: LoadSettings,
    shipped: Package | None = None,
) -> tuple[LoadedVersion, int]:
    """Load the current version of a package, and return it with its generation.

    Args:
        package: The directory of the package, as shipped.
        state: The state directory of the package.
        shipped: The package, if it has been opened before.

    Raises:
        MistifyError: NOT_FOUND, there is no package, or it serves another task; CORRUPT_PACKAGE, a file of it
            is missing or damaged, or LiteRT cannot run it; STORE_VERSION, a newer version of Mistify wrote
            it; INVALID_CONFIG, it serves a task that the factory of the shipped package does not have;
            UNTRUSTED, it is not signed by a trusted key; UNAVAILABLE, the library for signatures is not
            installed.
    """

    def loaded(version: Package, generation: int) -> LoadedVersion:
        return load_version(version, state, settings, switchboard.option_in(generation))

    return read_consistently(package, state, switchboard, loaded, shipped)


def load_current_or_shipped(
    package: Path,
    state: Path,
    switchboard: Switchboard,
    settings: LoadSettings,
    shipped: Package | None = None,
) -> tuple[LoadedVersion, int]:
    """Load the current version of a package like `load_current`; if it cannot be, the shipped one until then.

    Raises:
        MistifyError: Neither can be loaded, for the reasons of `load_current`.
    """
    try:
        return load_current(package, state, switchboard, settings, shipped)
    except MistifyError as error:
        if current(package) == package:
            raise
        # Logged as text: a handler that keeps the error would keep the network alive through its traceback.
        message = "%s is used as it was shipped, because its current version cannot be loaded: %s"
        logger.warning(message, package, str(error))
        generation = switchboard.generation_before  # so that the current version is retried
        option = switchboard.option_in(generation)
        return load_version(shipped or Package.open(package), state, settings, option), generation


def load_version(package: Package, state: Path, settings: LoadSettings, option: int) -> LoadedVersion:
    """Load a version of a package, with an option in memory.

    Args:
        state: The state directory of the package.
        option: Its index, as selected by the switchboard; the default one runs if there is no such option.

    Raises:
        MistifyError: NOT_FOUND, it serves another task; CORRUPT_PACKAGE, a file of it is missing or damaged,
            or LiteRT cannot run it; STORE_VERSION, a newer version of Mistify wrote it; INVALID_CONFIG, it
            serves a task that the factory of the shipped package does not have; UNTRUSTED, it is not signed
            by a trusted key; UNAVAILABLE, the library for signatures is not installed.
    """
    check_trusted(package, settings.trust)
    if settings.task is not None:
        settings.task.require_in(package.manifest)
    if NETWORK not in package.manifest.files:
        message = f"{package.directory / NETWORK} cannot be used: the manifest does not list it"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message)
    options = options_of(package, state)
    chosen = options.chosen(option)
    # The files that are used are read, and verified, later.
    used = options.options[chosen].blocks or (NETWORK, *((EXIT_STAGES,) if options.exits else ()))
    package.verify(with_blocks=False, skip=used)
    network = _opened(package, options, state, chosen, settings.threads)
    version = LoadedVersion(network, options, package)
    return version if settings.lending is None else _helped(version, settings.lending, state, chosen)


def _opened(
    package: Package, options: PackageOptions, state: Path, chosen: int, threads: int | None
) -> Runnable:
    """Open the options of a package on this device."""
    if options.paged:
        return open_paged(package, options, state, chosen, threads)
    network = open_network(package, threads or options.threads)
    return network if options.exits is None else with_exits(package, network, options.exits)


def _helped(version: LoadedVersion, lending: "LendingConfig", state: Path, chosen: int) -> LoadedVersion:
    """Let helpers help with a version; if they cannot, this device runs it alone."""
    from mistify_client.runtime.helped import with_helpers  # noqa: PLC0415 - gRPC, only with helpers

    try:
        return version._replace(network=with_helpers(version, lending, state, chosen))
    except MistifyError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        logger.warning("no helper is asked: %s", error)
        return version
