"""What callers use, and the limits on it."""

from mistify.quotas import CallerStatus, Usage
from mistify_server.identity.callers import Caller, CallerId
from mistify_server.identity.tenants import ByTenant
from mistify_server.jobs.running_jobs import RunningJobs
from mistify_server.store.directory import Store
from mistify_server.store.uploads import Uploads


class UsageService:
    """Reports what callers use of a server, and their limits."""

    def __init__(self, store: Store, jobs: RunningJobs, uploads: ByTenant[Uploads]) -> None:
        self._store = store
        self._jobs = jobs
        self._uploads = uploads

    def of(self, caller: CallerId) -> Usage:
        """Return what a caller uses."""
        return Usage(
            uploads=self._uploads.of(caller.tenant).kept_for(caller.name),
            jobs=self._store.of(caller.tenant).jobs.unfinished_of(caller.name),
            workers=self._jobs.steps_of(caller),
        )

    def status(self, caller: Caller) -> CallerStatus:
        """Return a caller's scopes, limits and tenant, and what they use."""
        limits = self._store.of(caller.tenant).tokens.limits(caller.name)
        scopes = tuple(sorted(scope.value for scope in caller.scopes))
        return CallerStatus(caller.name, scopes, limits, self.of(caller.id), caller.tenant)
