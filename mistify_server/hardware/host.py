"""This machine as a measured device, stored in the user's cache directory (paper 4.1)."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from mistify.costs.devices import Device, DeviceTable
from mistify.costs.profiles import MeasuredProfile
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.files.locking import locked
from mistify.files.places import cache_directory
from mistify.files.writing import write_bytes
from mistify.machine import machine, runtime
from mistify_server.hardware.fitting import fitted

#: Incremented whenever Mistify changes how it measures or fits profiles.
_EDITION: Final = 2


@dataclass(frozen=True)
class Host:
    """This machine.

    Attributes:
        device: Name, processor and measured settings of this machine.
        profiles: Profiles for each precision and number of threads, including one thread.
    """

    device: Device
    profiles: tuple[MeasuredProfile, ...]


_HOST = TypeAdapter(Host)


def kept_host() -> Host | None:
    """Return this machine's last measurement; None if there is none for this runtime and Mistify version."""
    try:
        return _HOST.validate_json(_path().read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def measured_host(measure: Callable[[], DeviceTable]) -> Host:
    """Return this machine's last measurement, or measure it.

    Other processes wait, so that concurrent measurements do not disturb each other.

    Args:
        measure: Measures this machine.
    """
    with _locked():
        return kept_host() or _keep(measure())


def register_host(table: DeviceTable) -> Host:
    """Store measurements of this machine, replacing earlier ones.

    Raises:
        MistifyError: INVALID_CONFIG, they come from another machine or runtime, or lack one thread; nothing
            was stored.
    """
    problems = list(_wrong(table))
    if problems:
        message = f"the device {table.name!r}, which is the server's machine, was not registered"
        raise MistifyError(ErrorCode.INVALID_CONFIG, message, problems)
    with _locked():
        return _keep(table)


def _wrong(table: DeviceTable) -> Iterator[Problem]:
    fix = "measure it on the server's machine, in the server's environment; or use another device name"
    if table.machine != machine():
        yield Problem("machine", table.machine, machine(), fix)
    if table.runtime != runtime():
        yield Problem("runtime", table.runtime, runtime(), fix)
    if all(reading.threads != 1 for reading in table.readings):
        yield Problem("readings", "none with one thread", "some", "measure it again: --threads 1")


def _keep(table: DeviceTable) -> Host:
    profiles, settings = fitted(table)
    device = Device(table.name, table.machine, table.runtime, tuple(settings), datetime.now(UTC))
    host = Host(device, tuple(profiles))
    write_bytes(_path(), _HOST.dump_json(host))
    return host


def _locked() -> AbstractContextManager[None]:
    directory = _path().parent
    directory.mkdir(parents=True, exist_ok=True)
    return locked(directory)


def _path() -> Path:
    """Return the file for this machine, runtime and selection of networks."""
    mistify = f"mistify-porting {version('mistify-porting')}, edition {_EDITION}"
    named = "\n".join((machine(), runtime(), mistify))
    return cache_directory() / "hosts" / f"{hashlib.sha256(named.encode()).hexdigest()[:16]}.json"
