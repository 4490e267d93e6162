"""The options of the current version of a package, installed and read so that they belong to this version."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from mistify.files.locking import locked
from mistify.package.opened import Package
from mistify_client.assembly.recorded_options import RecordedOptions
from mistify_client.files import damage_reported
from mistify_client.runtime.options import PackageOptions
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import check_current, open_current, state_directory


class HasOptions(Protocol):
    """A result of reading a package that includes its options."""

    @property
    def options(self) -> PackageOptions:
        """The options."""
        ...


_Read = TypeVar("_Read", bound=HasOptions)
_Recorded = TypeVar("_Recorded", bound=RecordedOptions)


def install_options(package: Path, recorded: _Recorded, *, expected: Path) -> _Recorded:
    """Make the subnets of a pool, or other recorded options, those of a package, starting with the default.

    The change is atomic, whenever the process ends: an option chosen among others is never applied to these.
    A process that reads the options before they are announced announces them (`read_consistently`).

    Args:
        package: The directory of the shipped package.
        recorded: The options of the expected version.
        expected: The version that has to be current, as for `check_current`.

    Returns:
        The options as they were written, with their generation.

    Raises:
        MistifyError: CONFLICT, another version is current; CORRUPT_PACKAGE, the package's state is damaged.
        OSError: The options cannot be written; the previous ones are kept.
    """
    state = state_directory(package)
    with damage_reported(state), locked(state):
        check_current(package, expected)
        switchboard = Switchboard.open(state)
        recorded = recorded.model_copy(update={"generation": switchboard.following})
        recorded.save(state)
        switchboard.announce(recorded.generation)
    return recorded


def read_consistently(
    package: Path,
    state: Path,
    switchboard: Switchboard,
    read: Callable[[Package, int], _Read],
    shipped: Package | None = None,
) -> tuple[_Read, int]:
    """Open the current version, with a consistent version, options and choice among them.

    Options that were written but not announced are announced: their writer was killed, or is still running.

    Args:
        package: The directory of the shipped package.
        state: Its state directory.
        read: Called with the current version and its generation; called again if another version, or other
            options, have become current in the meantime.
        shipped: The shipped package, if it is already open.

    Returns:
        The result of `read`, and its generation.
    """
    while True:
        generation = switchboard.generation
        result = read(open_current(package, shipped), generation)
        announced = result.options.generation
        if announced is not None and switchboard.is_before(announced):
            _announce(state, announced, switchboard)
        if switchboard.generation == generation:
            return result, generation
        shipped = None  # it may have been replaced by another package


def _announce(state: Path, generation: int, switchboard: Switchboard) -> None:
    with locked(state):
        if switchboard.is_before(generation):
            switchboard.announce(generation)
