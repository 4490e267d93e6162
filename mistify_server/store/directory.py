"""The directory of a store: its layout, lock and parts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError, invalid_config
from mistify.parsing.validation import InvalidValue
from mistify_server.identity.callers import DEFAULT_TENANT
from mistify_server.identity.tokens import TokenStore
from mistify_server.store.artifacts import ARTIFACTS, Artifacts, artifacts_of
from mistify_server.store.devices import DeviceStore
from mistify_server.store.fleet import FleetStore
from mistify_server.store.inspections import KeptInspections
from mistify_server.store.jobs import JobStore
from mistify_server.store.leases import Leases
from mistify_server.store.lock import LOGS, PRIVATE, locked_store, make_store_directory
from mistify_server.store.models import ModelStore
from mistify_server.store.objects.binding import opened_artifacts
from mistify_server.store.rollouts import RolloutStore
from mistify_server.store.signing_keys import SIGNING_KEYS, SigningKeys
from mistify_server.store.sql.backend import BUSY_SECONDS, Backend, Role
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.devices import SqlDeviceStore
from mistify_server.store.sql.file_paths import follow_directory
from mistify_server.store.sql.fleet import SqlFleetStore
from mistify_server.store.sql.jobs import SqlJobStore
from mistify_server.store.sql.leases import SqlLeases
from mistify_server.store.sql.migrations.migrate import is_outdated, migrate
from mistify_server.store.sql.models import SqlModelStore
from mistify_server.store.sql.postgresql.address import DatabaseAddress
from mistify_server.store.sql.postgresql.backend import PostgresBackend
from mistify_server.store.sql.postgresql.binding import BINDING, binding_of
from mistify_server.store.sql.rollouts import SqlRolloutStore
from mistify_server.store.sql.sqlite import DATABASE, SqliteBackend
from mistify_server.store.sql.tenants import tenants_of
from mistify_server.store.sql.tokens import SqlTokenStore
from mistify_server.store.sql.tuning import SqlTuningStore
from mistify_server.store.tuning import TuningStore
from mistify_server.store.upload_directories import UPLOADS

#: Names in the directory of a store.
WEIGHTS = "weights"
_INSPECTIONS = "inspections"

#: Name of the audit log in the directory of logs.
AUDIT = "audit.jsonl"


@dataclass(frozen=True)
class Store:
    """An open store: jobs, model names, devices, roll-outs, tuning, tokens, keys, artifacts, and worker logs.

    An open store contains the jobs and groups of all tenants, for the server itself and its operator, and
    otherwise what belongs to the tenant `default`. What a call of a tenant reaches is the store of this
    tenant (`of`). Models, keys, artifacts, weights, inspections and logs are those of the server; nobody
    reaches an artifact except through a job.

    `leases` are those of this process on jobs. `devices` holds measured devices, `fleet` the devices that
    report their status. `weights` holds files of tuned weights, which are temporary and therefore not in
    `artifacts`. `inspections` holds past inspections. `artifacts` may be in a bucket. `remote` is true if the
    database is another program, perhaps on another machine; `reachable` says at once whether calls to it can
    be expected to succeed. `of` returns the store of a tenant, and `tenants` the tenants that have tokens,
    devices or roll-outs.
    """

    jobs: JobStore
    leases: Leases
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
    remote: bool
    reachable: Callable[[], bool]
    of: Callable[[str], "Store"]
    tenants: Callable[[], list[str]]


@contextmanager
def open_store(
    directory: Path, busy_seconds: float = BUSY_SECONDS, backend: Backend | None = None
) -> Iterator[Store]:
    """Open a store, creating it if necessary. Several processes can have it open.

    An older store is migrated first, with servers locked out.

    Args:
        busy_seconds: Seconds that a call waits for other processes before it fails with UNAVAILABLE.
        backend: From `locked_backend`, and otherwise None.

    Raises:
        MistifyError: STORE_VERSION, the store cannot be migrated, or a newer Mistify wrote it; UNAVAILABLE,
            it cannot be used.
    """
    with _open_database(directory, busy_seconds, backend) as (store, _):
        yield store


@contextmanager
def _open_database(
    directory: Path, busy_seconds: float, backend: Backend | None
) -> Iterator[tuple[Store, Database]]:
    """Open a store as in `open_store`, and yield its database as well."""
    make_store_directory(directory)
    backend = backend or backend_of(directory)
    if is_outdated(backend):
        with serving(directory):
            pass
    database = Database.open(backend, busy_seconds)
    try:
        whole = Store(
            jobs=SqlJobStore(database),
            leases=SqlLeases(database),
            models=SqlModelStore(database),
            devices=SqlDeviceStore(database, DEFAULT_TENANT),
            fleet=SqlFleetStore(database, DEFAULT_TENANT),
            rollouts=SqlRolloutStore(database, DEFAULT_TENANT),
            tuning=SqlTuningStore(database),
            tokens=SqlTokenStore(database, DEFAULT_TENANT),
            signing_keys=SigningKeys(directory / SIGNING_KEYS),
            artifacts=opened_artifacts(directory),
            weights=Artifacts(directory / WEIGHTS),
            inspections=KeptInspections(directory / _INSPECTIONS),
            logs=directory / LOGS,
            remote=backend.remote,
            reachable=lambda: backend.reachable,
            of=lambda tenant: _of_tenant(whole, database, tenant),
            tenants=lambda: tenants_of(database),
        )
        yield whole, database
    finally:
        database.close()


def _of_tenant(whole: Store, database: Database, tenant: str) -> Store:
    return replace(
        whole,
        jobs=SqlJobStore(database, tenant=tenant),
        devices=SqlDeviceStore(database, tenant),
        fleet=SqlFleetStore(database, tenant),
        rollouts=SqlRolloutStore(database, tenant),
        tuning=SqlTuningStore(database, tenant),
        tokens=SqlTokenStore(database, tenant),
    )


@contextmanager
def locked_backend(directory: Path, address: str | None = None, role: Role = Role.MAIN) -> Iterator[Backend]:
    """Keep others from a store's database within the block; the caller has locked its directory.

    Servers that join others do not lock the directory.

    Args:
        address: The address of a database in PostgreSQL; None for the one that the store had before.
        role: Main server, joined server, or the only user of the database.

    Raises:
        MistifyError: CONFLICT, the store has a database in SQLite; INVALID_CONFIG, the address is invalid, or
            servers cannot join others; UNAVAILABLE, another server uses the database, or it is not reached.
    """
    backend = backend_of(directory, address)
    with backend.locked(role):
        yield backend


@contextmanager
def open_joined_store(directory: Path, busy_seconds: float, backend: Backend) -> Iterator[Store]:
    """Open a store beside its main server.

    Args:
        busy_seconds: Seconds that a call waits for other processes before it fails with UNAVAILABLE.
        backend: From `locked_backend`.

    Raises:
        MistifyError: STORE_VERSION, the main server has to migrate it first, or a newer Mistify wrote it;
            CONFLICT, the database belongs to another store; UNAVAILABLE, it cannot be used.
    """
    if is_outdated(backend):
        raise MistifyError(
            ErrorCode.STORE_VERSION,
            f"{backend.name} is of an older version; start this version without --join, which migrates it",
        )
    with open_store(directory, busy_seconds, backend) as store:
        yield store


@contextmanager
def open_store_as_server(directory: Path, busy_seconds: float, backend: Backend) -> Iterator[Store]:
    """Bring a store up to date and open it, for its main server; others can join from then on.

    A store that has moved, or a backup, gets the paths of its files where they are now.

    Args:
        busy_seconds: Seconds that a call waits for other processes before it fails with UNAVAILABLE.
        backend: From `locked_backend`.

    Raises:
        MistifyError: STORE_VERSION, it cannot be migrated, or a newer Mistify wrote it; CONFLICT, the
            database belongs to another store; UNAVAILABLE, it cannot be used.
    """
    _bring_up_to_date(directory, backend)
    with _open_database(directory, busy_seconds, backend) as (store, database):
        if backend.alone:
            store.leases.start_alone()
            follow_directory(database, directory)
        backend.admit()
        yield store


def has_database(directory: Path) -> bool:
    """Check whether a directory has been used as a store."""
    return any((directory / name).exists() for name in (DATABASE, BINDING))


def backend_of(directory: Path, address: str | None = None) -> Backend:
    """Return the database of a store: SQLite in its directory, unless it has or gets one in PostgreSQL.

    Args:
        address: The address of a database in PostgreSQL; None for the one that the store had before.

    Raises:
        MistifyError: CONFLICT, the store has a database in SQLite; INVALID_CONFIG, the address is invalid.
    """
    recorded = binding_of(directory)
    if address is None and recorded is not None:
        address = recorded.address
    if address is None:
        return SqliteBackend(directory / DATABASE)
    if (directory / DATABASE).exists():
        raise MistifyError(
            ErrorCode.CONFLICT,
            f"the store {directory} has its database in {DATABASE}; omit --database, or use another --store",
        )
    try:
        return PostgresBackend(DatabaseAddress.of(address), directory)
    except InvalidValue as error:
        raise invalid_config([error.problem("database")], "the store") from error


@contextmanager
def serving(directory: Path) -> Iterator[None]:
    """Keep all servers from a store within the block, and bring it up to date.

    Raises:
        MistifyError: UNAVAILABLE, a server uses the store, or it cannot be used; STORE_VERSION, it
            cannot be migrated, or a newer Mistify wrote it.
    """
    with locked_store(directory), locked_backend(directory, role=Role.ALONE) as backend:
        _bring_up_to_date(directory, backend)
        yield


def tidy_files(directory: Path) -> None:
    """Remove the incomplete files of a server that was killed, and other users' access."""
    for files in (artifacts_of(directory), Artifacts(directory / WEIGHTS)):
        files.clear_incoming()
    _restrict_permissions(directory)


def _bring_up_to_date(directory: Path, backend: Backend) -> None:
    """Migrate an older store, and tidy up after a server that was killed; the caller holds the locks.

    Raises:
        MistifyError: STORE_VERSION, it cannot be migrated, or a newer Mistify wrote it; UNAVAILABLE, other
            servers use it, so that it cannot be migrated, or it cannot be used.
    """
    if not backend.alone:
        if is_outdated(backend):
            raise MistifyError(
                ErrorCode.UNAVAILABLE,
                f"{backend.name} has to be migrated, and other servers use it; stop all servers of the store "
                "first",
            )
        return
    tidy_files(directory)
    migrate(backend)
    backend.tidy()


def _restrict_permissions(directory: Path) -> None:
    """Revoke other users' access to files created by earlier versions."""
    for path in (directory / name for name in (DATABASE, LOGS, ARTIFACTS, WEIGHTS, UPLOADS)):
        if path.exists():
            path.chmod(path.stat().st_mode & PRIVATE)
