"""Startup and shutdown of the server: store, engine, jobs, services, gRPC and HTTP."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from grpc_health.v1 import health, health_pb2

from mistify.costs.axes import axis_registry
from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.quantities import format_bytes, parse_bytes
from mistify.wire.listening import Certificate, listen
from mistify_server.api.serving import SERVICES, grpc_server
from mistify_server.engines.base import TaskEngine
from mistify_server.engines.opening import open_engine
from mistify_server.file_descriptors import raise_descriptor_limit
from mistify_server.hardware.service import DeviceService
from mistify_server.health import StoreHealth
from mistify_server.identity.audit import AuditLog
from mistify_server.identity.authentication import Authenticator
from mistify_server.identity.open_calls import OpenCalls
from mistify_server.identity.tenants import ByTenant
from mistify_server.jobs.inspection_turns import InspectionTurns
from mistify_server.jobs.package_files import PackageFiles
from mistify_server.jobs.removals import JobRemovals
from mistify_server.jobs.running_jobs import RunningJobs
from mistify_server.jobs.service import DEFAULT_MAX_GOALS, PortingService
from mistify_server.jobs.shared_jobs import LEASE_SECONDS, SharedJobs
from mistify_server.joining import (
    OnMainServer,
    address_for_others,
    check_joinable,
    remove_left_logs,
    worker_prefix,
)
from mistify_server.listening import DEFAULT_HTTP, DEFAULT_LISTEN
from mistify_server.memory import keep_trimmed
from mistify_server.planning.inspector import BatchInspector
from mistify_server.planning.known_inspections import KnownInspections
from mistify_server.planning.lookup.data_roots import DataRoots
from mistify_server.planning.lookup.models import ModelRepository
from mistify_server.planning.lookup.resolver import BatchResolver
from mistify_server.rollouts.reports import fleet_services, keep_updated
from mistify_server.services import Access, Services
from mistify_server.stopping import stop_requested
from mistify_server.store.backup import make_own_store
from mistify_server.store.directory import (
    AUDIT,
    Store,
    locked_backend,
    open_joined_store,
    open_store_as_server,
)
from mistify_server.store.inspections import KeptInspections
from mistify_server.store.lock import LOGS, locked_store
from mistify_server.store.objects.binding import bind_artifacts
from mistify_server.store.package_signatures import prepare_signing
from mistify_server.store.sql.backend import Backend, Role
from mistify_server.store.tenant_uploads import collect_uploads, open_uploads
from mistify_server.store.upload_directories import UPLOADS
from mistify_server.store.uploads import Uploads
from mistify_server.telemetry.measured_engine import MeasuredEngine
from mistify_server.telemetry.metrics import Metrics
from mistify_server.telemetry.server_state import ServerState
from mistify_server.threads import use_enough_threads
from mistify_server.tracing.opening import open_traces
from mistify_server.tracing.traces import Traces
from mistify_server.tuning.service import TuningService
from mistify_server.tuning.storage import MEMORY, IndexStorage
from mistify_server.usage import UsageService
from mistify_server.web.pages.report_page import report_page

#: The HTTP address that disables HTTP.
HTTP_OFF = "off"

_log = logging.getLogger(__name__)

#: Grace period in seconds for running calls when the server stops.
_GRACE = 2.0

#: How long a call waits for another process that writes to the store; other calls wait for its thread
#: meanwhile.
_BUSY_SECONDS = 0.5

#: Default limit on the total size of uploads, and on that of published weights.
DEFAULT_MAX_UPLOADS = "50GB"

#: Default limit on the total size of the copies of artifacts in a bucket.
DEFAULT_ARTIFACTS_CACHE = "20GB"

#: Interval between removals of unused uploads.
_COLLECTION_SECONDS = 3600.0

#: Number of new objects between Python's searches for reference cycles among them.
_OBJECTS_PER_COLLECTION = 10_000


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server.

    Attributes:
        store: The store directory; created if it does not exist.
        database: Address of a database in PostgreSQL; None for the one that the store had before, or SQLite.
        artifacts: Address of artifacts in a bucket; None for the one that the store had before, or its own
            directory.
        artifacts_cache: Limit on the total size of their copies on each machine, in bytes.
        listen: `host:port`; port 0 picks a free port.
        http: Address for HTTP; None for `DEFAULT_HTTP`, unless another program uses it; "off" for no HTTP.
        http_origins: Origins at which browsers reach the server through a proxy, as browsers send them.
        data_roots: The only directories from which models and data are read.
        allow_code: Whether workers run the Python files with metrics and losses that configs name.
        engine: The engine that runs tasks: `local`, `ray` or `ray://HOST:PORT`.
        slots: Number of concurrent tasks; None for the engine's default.
        max_goals: Maximum number of goals in a job.
        max_uploads: Maximum size of all uploads, and of all weights that devices publish, in bytes.
        index: Where the index of peers is kept: `memory` or `redis://HOST:PORT`.
        certificate: Certificate for TLS; None for a server without TLS.
        token: Secret that callers must send; required for addresses other than loopback.
        worker: The command that starts a worker; None for the default.
        resume: Whether to resume unfinished jobs in the store.
        join: Whether to share the jobs of a store with its main server, without bringing it up to date.
        lease_seconds: How long a server that does not renew its lease keeps its jobs from others.
        inspections: Directory of past inspections; None for the store's own.
        traces: URL of the collector of traces; None for the one in OpenTelemetry's variables, if any.
    """

    store: Path
    database: str | None = None
    artifacts: str | None = None
    artifacts_cache: float = parse_bytes(DEFAULT_ARTIFACTS_CACHE).value
    listen: str = DEFAULT_LISTEN
    http: str | None = HTTP_OFF
    http_origins: Sequence[str] = ()
    data_roots: Sequence[Path] = ()
    allow_code: bool = False
    engine: str = "local"
    slots: int | None = None
    max_goals: int = DEFAULT_MAX_GOALS
    max_uploads: float = parse_bytes(DEFAULT_MAX_UPLOADS).value
    index: str = MEMORY
    certificate: Certificate | None = None
    token: str | None = None
    worker: Sequence[str] | None = None
    resume: bool = True
    join: bool = False
    lease_seconds: float = LEASE_SECONDS
    inspections: Path | None = None
    traces: str | None = None


async def serve(settings: ServerSettings, on_ready: Callable[[str, str | None], None]) -> None:
    """Serve until SIGTERM or SIGINT. The next server resumes unfinished jobs.

    Args:
        on_ready: Called once the server answers calls, with the bound address and the HTTP URL, which is None
            without HTTP.

    Raises:
        MistifyError: The server cannot start; the error says why.
    """
    raise_descriptor_limit()
    use_enough_threads()
    requested = stop_requested()
    async with running_server(settings) as addresses:
        reduce_garbage_collection()
        address, url = addresses
        _log.info("the server is ready", extra={"address": address, "http": url})
        on_ready(address, url)
        await requested.wait()


def reduce_garbage_collection() -> None:
    """Reduce the frequency of garbage collection, and exempt the objects that live as long as the server.

    The plan of a large job has millions of objects, none of them in a reference cycle. Scanning them as often
    as Python does by default takes a third of the planning time and stops every thread. But each call and job
    leaves objects in cycles, which take memory until they are scanned: some 240 for a job that is submitted,
    cancelled and removed.
    """
    gc.freeze()
    gc.set_threshold(_OBJECTS_PER_COLLECTION, 10, 10)


@asynccontextmanager
async def running_server(settings: ServerSettings) -> AsyncIterator[tuple[str, str | None]]:
    """Run a server within the block, and yield its bound address and its HTTP URL, if any."""
    with nullcontext() if settings.join else locked_store(settings.store):
        if settings.join:
            check_joinable(settings.store)
            remove_left_logs(settings.store / LOGS)
        else:
            copies_bytes = int(settings.artifacts_cache)
            await asyncio.to_thread(bind_artifacts, settings.store, settings.artifacts, copies_bytes)
        role = Role.JOINED if settings.join else Role.MAIN
        prefix = worker_prefix(settings.listen) if settings.join else ""
        with locked_backend(settings.store, settings.database, role) as backend:
            async with (
                open_traces(settings.traces) as traces,
                open_engine(
                    settings.engine, settings.store, settings.worker, settings.slots, prefix, traces=traces
                ) as engine,
            ):
                engine.keep_ready()
                async with serving_with(engine, settings, backend, traces) as addresses:
                    yield addresses


@asynccontextmanager
async def serving_with(
    engine: TaskEngine, settings: ServerSettings, backend: Backend, traces: Traces
) -> AsyncIterator[tuple[str, str | None]]:
    """Run a server with an open engine within the block; the caller holds the lock of the store.

    Args:
        backend: The database of the store, from `locked_backend`.
        traces: Records the same traces as those of the engine.

    Yields:
        Its bound address and its HTTP URL, if any.
    """
    for name, reason in axis_registry().broken.items():
        _log.warning("the metric %s cannot be used: %s", name, reason)
    with _open_services(engine, settings, backend, traces) as services:
        health_service = health.aio.HealthServicer()  # type: ignore[attr-defined, unused-ignore]
        server = grpc_server(services, health_service, report_page)
        address = listen(server, settings.listen, certificate=settings.certificate, token=settings.token)
        sharing = services.sharing
        if sharing is not None:
            await sharing.renew()  # first: otherwise, others would take the jobs that calls submit
            if not settings.join:
                await asyncio.to_thread(sharing.leases.record_main, address_for_others(address))
        await server.start()
        work = [
            services.jobs.keep_starting(),
            keep_trimmed(),
            keep_updated(services.reports),
            services.access.calls.keep_checking(),
            services.tuning.upkeep(),
        ]
        if sharing is not None:
            work += [sharing.keep_renewing(), sharing.keep_looking()]
        if not settings.join:
            work += [_collect_uploads(services.uploads), services.removals.keep_removing()]
        tasks = [asyncio.create_task(each) for each in work]
        for task in tasks:
            task.add_done_callback(_report_end)
        try:
            if settings.resume and not settings.join:
                services.jobs.resume()
            for name in ("", *SERVICES):
                await health_service.set(name, health_pb2.HealthCheckResponse.SERVING)
            async with _web(settings, services) as url:
                try:
                    yield address, url
                finally:  # while calls are answered: others continue the jobs, and load balancers see it
                    await health_service.enter_graceful_shutdown()
                    await services.jobs.stop()
                    if sharing is not None:
                        await sharing.leave()
        finally:
            for task in tasks:
                task.cancel()
            await services.jobs.stop()
            await server.stop(_GRACE)


def _report_end(task: asyncio.Task[None]) -> None:
    """Log the error of a task that should have run for as long as the server."""
    if not task.cancelled() and (error := task.exception()) is not None:
        name = getattr(task.get_coro(), "__qualname__", task.get_name())
        _log.error("%s has ended because of an internal error", name, exc_info=error)


@contextmanager
def _open_services(
    engine: TaskEngine, settings: ServerSettings, backend: Backend, traces: Traces
) -> Iterator[Services]:
    """Open the store within the block, and yield the services that use it."""
    index = IndexStorage.of(settings.index)
    opened = open_joined_store if settings.join else open_store_as_server
    with opened(settings.store, _BUSY_SECONDS, backend) as store:
        if not settings.join:
            make_own_store(settings.store)
            prepare_signing(store)
        metrics = Metrics()
        measured = MeasuredEngine(engine, metrics)
        uploads = open_uploads(store, settings.store / UPLOADS, settings.max_uploads)
        jobs = RunningJobs(store, measured, traces)
        models = ModelRepository(store.models, store.artifacts)
        sharing = None
        if store.remote:
            takes, seconds = settings.resume, settings.lease_seconds
            sharing = SharedJobs(store.leases, jobs, measured, takes=takes, seconds=seconds)
        known = store.inspections if settings.inspections is None else KeptInspections(settings.inspections)
        turns = InspectionTurns(measured.slots + 1)  # one is spare, for inspections alone
        inspector = BatchInspector(measured, KnownInspections(known), turns.take)
        resolvers = _resolvers(settings, store, models, uploads)
        porting = PortingService(store, jobs, resolvers, inspector, max_goals=settings.max_goals)
        fleets, rollouts, reports = fleet_services(store)
        state = ServerState(settings.store, store.jobs, jobs, measured, uploads, turns=turns)
        metrics.registry.register(state)
        notified = nullcontext() if sharing is None else store.leases.announced(sharing.on_change)
        with notified, closing(AuditLog(store.logs / AUDIT)) as audit:
            authenticator = Authenticator(settings.token, store.tokens, remote=store.remote)
            tokens = ByTenant(lambda tenant: store.of(tenant).tokens)
            access = Access(authenticator, OpenCalls(authenticator), tokens, audit)
            yield Services(
                porting=porting,
                removals=JobRemovals(store, jobs, measured),
                packages=PackageFiles(store),
                tuning=_tuning(settings, store, index),
                devices=DeviceService(store),
                fleets=fleets,
                rollouts=rollouts,
                reports=reports,
                uploads=uploads,
                models=models,
                jobs=jobs,
                sharing=sharing,
                health=StoreHealth(store),
                metrics=metrics,
                traces=traces,
                access=access,
                usage=UsageService(store, jobs, uploads),
            )


def _resolvers(
    settings: ServerSettings, store: Store, models: ModelRepository, uploads: ByTenant[Uploads]
) -> ByTenant[BatchResolver]:
    """Return what finds the models, data and devices of each tenant."""
    roots = DataRoots.of(settings.data_roots, settings.store)

    def resolver(tenant: str) -> BatchResolver:
        own = replace(roots, uploads=uploads.of(tenant))
        return BatchResolver(models, own, store.of(tenant).devices, settings.allow_code)

    return ByTenant(resolver)


def _tuning(settings: ServerSettings, store: Store, index: IndexStorage) -> TuningService:
    """Return the coordinator, which only the main server has; another one refuses every use."""
    if settings.join:
        elsewhere: Any = OnMainServer(store)
        return cast("TuningService", elsewhere)
    tuning = TuningService(store, index, most_bytes=settings.max_uploads)
    tuning.sweep()
    return tuning


@asynccontextmanager
async def _web(settings: ServerSettings, services: Services) -> AsyncIterator[str | None]:
    """Serve HTTP within the block, and yield its URL; None if HTTP is off."""
    if settings.http == HTTP_OFF:
        yield None
        return
    # Servers that run for a single command have no HTTP and should not wait for its libraries.
    from mistify_server.web.app import web_app  # noqa: PLC0415
    from mistify_server.web.serving import serve_http  # noqa: PLC0415

    app = web_app(services, settings.http_origins)
    async with AsyncExitStack() as opened:
        try:
            url = await opened.enter_async_context(
                serve_http(
                    app, settings.http or DEFAULT_HTTP, certificate=settings.certificate, token=settings.token
                )
            )
        except MistifyError as error:
            if settings.http is not None or error.code is not ErrorCode.ADDRESS_IN_USE:
                raise
            _log.warning("HTTP is not available: %s", error)
            url = None
        yield url


async def _collect_uploads(uploads: ByTenant[Uploads]) -> None:
    """Remove unused uploads every hour."""
    while True:
        if freed := await asyncio.to_thread(collect_uploads, uploads):
            _log.info("removed %s of unused uploads", format_bytes(freed, 3))
        await asyncio.sleep(_COLLECTION_SECONDS)
