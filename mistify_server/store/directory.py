"""The directory of a store: its layout, lock and parts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import try_lock
from mistify_server.identity.tokens import TokenStore
from mistify_server.store.artifacts import ARTIFACTS, Artifacts, artifacts_of
from mistify_server.store.devices import DeviceStore
from mistify_server.store.fleet import FleetStore
from mistify_server.store.inspections import KeptInspections
from mistify_server.store.jobs import JobStore
from mistify_server.store.models import ModelStore
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.devices import SqlDeviceStore
from mistify_server.store.sql.fleet import SqlFleetStore
from mistify_server.store.sql.jobs import SqlJobStore
from mistify_server.store.sql.migrations.migrate import BUSY_SECONDS, is_outdated, make_shrinkable, migrate
from mistify_server.store.sql.models import SqlModelStore
from mistify_server.store.sql.tokens import SqlTokenStore
from mistify_server.store.sql.tuning import SqlTuningStore
from mistify_server.store.tuning import TuningStore

_LOCK = "lock"

#: Names in the directory of a store.
DATABASE = "mistify.db"
LOGS = "logs"
WEIGHTS = "weights"
_INSPECTIONS = "inspections"

UPLOADS = "uploads"

#: Name of the audit log in the directory of logs.
AUDIT = "audit.jsonl"

#: Mode of a store's directories: only the user who runs the server has access.
_PRIVATE = 0o700


@dataclass(frozen=True)
class Store:
    """An open store: jobs, model names, devices, tuning with peers, tokens, artifacts, and worker logs.

    `devices` holds measured devices, `fleet` the devices that report their status. `weights` holds files of
    tuned weights, which are temporary and therefore not in `artifacts`. `inspections` holds past inspections.
    """

    jobs: JobStore
    models: ModelStore
    devices: DeviceStore
    fleet: FleetStore
    tuning: TuningStore
    tokens: TokenStore
    artifacts: Artifacts
    weights: Artifacts
    inspections: KeptInspections
    logs: Path


@contextmanager
def open_store(directory: Path, busy_seconds: float = BUSY_SECONDS) -> Iterator[Store]:
    """Open a store, creating it if necessary. Several processes can have it open.

    An older store is migrated first, with servers locked out.

    Args:
        busy_seconds: Seconds that a call waits for other processes before it fails with UNAVAILABLE.

    Raises:
        MistifyError: STORE_VERSION, the store cannot be migrated, or a newer Mistify wrote it; UNAVAILABLE,
            it cannot be used.
    """
    _make(directory)
    if is_outdated(directory / DATABASE):
        with serving(directory):
            pass
    database = Database.open(directory / DATABASE, busy_seconds)
    try:
        yield Store(
            jobs=SqlJobStore(database),
            models=SqlModelStore(database),
            devices=SqlDeviceStore(database),
            fleet=SqlFleetStore(database),
            tuning=SqlTuningStore(database),
            tokens=SqlTokenStore(database),
            artifacts=artifacts_of(directory),
            weights=Artifacts(directory / WEIGHTS),
            inspections=KeptInspections(directory / _INSPECTIONS),
            logs=directory / LOGS,
        )
    finally:
        database.close()


def database_bytes(directory: Path) -> int:
    """Return the size of a store's database in bytes, including data not yet in its main file."""
    files = directory / DATABASE, directory / f"{DATABASE}-wal"
    return sum(path.stat().st_size for path in files if path.exists())


@contextmanager
def serving(directory: Path) -> Iterator[None]:
    """Hold the lock for the store's only server within the block; it is released when the process ends.

    An older store is migrated.

    Raises:
        MistifyError: UNAVAILABLE, another server has the store, or it cannot be used; STORE_VERSION, it
            cannot be migrated, or a newer Mistify wrote it.
    """
    _make(directory)
    with _translated(directory):
        handle = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not try_lock(handle):
            raise MistifyError(
                ErrorCode.UNAVAILABLE,
                f"the store {directory} is in use by another server (process {_holder(handle)}); "
                "stop that server or use another --store",
            )
        os.truncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        for files in (artifacts_of(directory), Artifacts(directory / WEIGHTS)):
            files.clear_incoming()
        _restrict_permissions(directory)
        migrate(directory / DATABASE)
        make_shrinkable(directory / DATABASE)
        yield
    finally:
        os.close(handle)


def _holder(handle: int) -> str:
    return os.pread(handle, 32, 0).decode(errors="replace") or "unknown"


def _restrict_permissions(directory: Path) -> None:
    """Revoke other users' access to files created by earlier versions."""
    for path in (directory / name for name in (DATABASE, LOGS, ARTIFACTS, WEIGHTS, UPLOADS)):
        if path.exists():
            path.chmod(path.stat().st_mode & _PRIVATE)


def _make(directory: Path) -> None:
    with _translated(directory):
        directory.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        (directory / LOGS).mkdir(mode=_PRIVATE, exist_ok=True)


@contextmanager
def _translated(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            f"the store {directory} cannot be used ({error.strerror}); "
            "give the server write access to it or use another --store",
        ) from error
