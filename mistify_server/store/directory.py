"""The directory of a store: its layout, lock and parts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mistify_server.identity.tokens import TokenStore
from mistify_server.store.artifacts import ARTIFACTS, Artifacts, artifacts_of
from mistify_server.store.devices import DeviceStore
from mistify_server.store.fleet import FleetStore
from mistify_server.store.inspections import KeptInspections
from mistify_server.store.jobs import JobStore
from mistify_server.store.lock import LOGS, PRIVATE, locked_store, make_store_directory
from mistify_server.store.models import ModelStore
from mistify_server.store.rollouts import RolloutStore
from mistify_server.store.signing_keys import SIGNING_KEYS, SigningKeys
from mistify_server.store.sql.backend import BUSY_SECONDS, Backend
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.devices import SqlDeviceStore
from mistify_server.store.sql.fleet import SqlFleetStore
from mistify_server.store.sql.jobs import SqlJobStore
from mistify_server.store.sql.migrations.migrate import is_outdated, migrate
from mistify_server.store.sql.models import SqlModelStore
from mistify_server.store.sql.rollouts import SqlRolloutStore
from mistify_server.store.sql.sqlite import DATABASE, SqliteBackend
from mistify_server.store.sql.tokens import SqlTokenStore
from mistify_server.store.sql.tuning import SqlTuningStore
from mistify_server.store.tuning import TuningStore

#: Names in the directory of a store.
WEIGHTS = "weights"
_INSPECTIONS = "inspections"

UPLOADS = "uploads"

#: Name of the audit log in the directory of logs.
AUDIT = "audit.jsonl"


@dataclass(frozen=True)
class Store:
    """An open store: jobs, model names, devices, roll-outs, tuning, tokens, keys, artifacts, and worker logs.

    `devices` holds measured devices, `fleet` the devices that report their status. `weights` holds files of
    tuned weights, which are temporary and therefore not in `artifacts`. `inspections` holds past inspections.
    """

    jobs: JobStore
    models: ModelStore
    devices: DeviceStore
    fleet: FleetStore
    rollouts: RolloutStore
    tuning: TuningStore
    tokens: TokenStore
    signing_keys: SigningKeys
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
    make_store_directory(directory)
    backend = backend_of(directory)
    if is_outdated(backend):
        with serving(directory):
            pass
    database = Database.open(backend, busy_seconds)
    try:
        yield Store(
            jobs=SqlJobStore(database),
            models=SqlModelStore(database),
            devices=SqlDeviceStore(database),
            fleet=SqlFleetStore(database),
            rollouts=SqlRolloutStore(database),
            tuning=SqlTuningStore(database),
            tokens=SqlTokenStore(database),
            signing_keys=SigningKeys(directory / SIGNING_KEYS),
            artifacts=artifacts_of(directory),
            weights=Artifacts(directory / WEIGHTS),
            inspections=KeptInspections(directory / _INSPECTIONS),
            logs=directory / LOGS,
        )
    finally:
        database.close()


def has_database(directory: Path) -> bool:
    """Check whether a directory has been used as a store."""
    return (directory / DATABASE).exists()


def backend_of(directory: Path) -> Backend:
    """Return the database of a store."""
    return SqliteBackend(directory / DATABASE)


@contextmanager
def serving(directory: Path) -> Iterator[None]:
    """Hold the lock for the store's only server within the block, and bring the store up to date.

    Raises:
        MistifyError: As for `locked_store` and `bring_up_to_date`.
    """
    with locked_store(directory):
        bring_up_to_date(directory)
        yield


def bring_up_to_date(directory: Path) -> None:
    """Migrate an older store, and tidy up after a server that was killed; the caller holds the lock.

    Raises:
        MistifyError: UNAVAILABLE, the store cannot be used; STORE_VERSION, it cannot be migrated, or a newer
            Mistify wrote it.
    """
    for files in (artifacts_of(directory), Artifacts(directory / WEIGHTS)):
        files.clear_incoming()
    _restrict_permissions(directory)
    backend = backend_of(directory)
    migrate(backend)
    backend.tidy()


def _restrict_permissions(directory: Path) -> None:
    """Revoke other users' access to files created by earlier versions."""
    for path in (directory / name for name in (DATABASE, LOGS, ARTIFACTS, WEIGHTS, UPLOADS)):
        if path.exists():
            path.chmod(path.stat().st_mode & PRIVATE)
