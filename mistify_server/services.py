"""The services that a server offers over gRPC and HTTP."""

from dataclasses import dataclass

from mistify_server.fleet import Fleet
from mistify_server.hardware.service import DeviceService
from mistify_server.health import StoreHealth
from mistify_server.identity.audit import AuditLog
from mistify_server.identity.authentication import Authenticator
from mistify_server.identity.open_calls import OpenCalls
from mistify_server.identity.tenants import ByTenant
from mistify_server.identity.tokens import TokenStore
from mistify_server.jobs.package_files import PackageFiles
from mistify_server.jobs.removals import JobRemovals
from mistify_server.jobs.running_jobs import RunningJobs
from mistify_server.jobs.service import PortingService
from mistify_server.jobs.shared_jobs import SharedJobs
from mistify_server.planning.lookup.models import ModelRepository
from mistify_server.rollouts.reports import DeviceReports
from mistify_server.rollouts.service import RolloutService
from mistify_server.store.uploads import Uploads
from mistify_server.telemetry.metrics import Metrics
from mistify_server.tracing.traces import Traces
from mistify_server.tuning.service import TuningService
from mistify_server.usage import UsageService


@dataclass(frozen=True)
class Access:
    """Access to a server: authentication of callers, their open calls and tokens, and the audit log."""

    authenticator: Authenticator
    calls: OpenCalls
    tokens: ByTenant[TokenStore]
    audit: AuditLog


@dataclass(frozen=True)
class Services:
    """The services of a server, its running jobs, its health, metrics and traces, access to it, and its use.

    What a call reaches belongs to the tenant of its caller (`current_caller`): by tenant, or because the
    service uses that tenant's store. Only `models`, `jobs`, `sharing` (None without other
    servers), `health`, `metrics` and `traces` are the whole server's.
    """

    porting: PortingService
    removals: JobRemovals
    packages: PackageFiles
    tuning: TuningService
    devices: DeviceService
    fleets: ByTenant[Fleet]
    rollouts: ByTenant[RolloutService]
    reports: ByTenant[DeviceReports]
    uploads: ByTenant[Uploads]
    models: ModelRepository
    jobs: RunningJobs
    sharing: SharedJobs | None
    health: StoreHealth
    metrics: Metrics
    traces: Traces
    access: Access
    usage: UsageService
