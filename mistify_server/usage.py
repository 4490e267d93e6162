"""What callers use, and the limits on it."""

from mistify.quotas import CallerStatus, Usage
from mistify_server.identity.callers import Caller
from mistify_server.jobs.running_jobs import RunningJobs
from mistify_server.store.directory import Store
from mistify_server.store.uploads import Uploads


class Usages:
    """What callers use of a server."""

    def __init__(self, store: Store, jobs: RunningJobs, uploads: Uploads) -> None:
        self._store = store
        self._jobs = jobs
        self._uploads = uploads

    def usage(self, name: str) -> Usage:
        """Return what a caller uses.

        Args:
            name: The name of the caller's token.
        """
        return Usage(
            uploads=self._uploads.kept_for(name),
            jobs=self._store.jobs.unfinished_of(name),
            workers=self._jobs.steps_of(name),
        )

    def status(self, caller: Caller) -> CallerStatus:
        """Return a caller's scopes and limits, and what they use."""
        limits = self._store.tokens.limits(caller.name)
        scopes = tuple(sorted(scope.value for scope in caller.scopes))
        return CallerStatus(caller.name, scopes, limits, self.usage(caller.name))
