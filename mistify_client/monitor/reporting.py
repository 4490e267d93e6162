"""Reports to the server on the latencies of packages on an idle device (paper 4.1, 6)."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from mistify.errors import MistifyError
from mistify.files.writing import write_json
from mistify.package.manifest import Manifest
from mistify_client.monitor.config import ReportingConfig
from mistify_client.monitor.replacement.access import RETRY, ServerAccess, passes
from mistify_client.monitor.state.journal import Journal
from mistify_client.profiling import measure_package
from mistify_client.rpc.devices import DevicesClient
from mistify_client.rpc.retry import Backoff
from mistify_client.runtime.trust import Trust, check_trusted
from mistify_client.runtime.versions import open_current

_ABOUT = "reporting"


class DeviceLatency(BaseModel):
    """Latency of a package on this device.

    Attributes:
        milliseconds: Latency of one inference.
        reported: True if the server has accepted the report, or rejected it permanently. Stored as `told`.
    """

    model_config = ConfigDict(populate_by_name=True)

    milliseconds: float
    reported: bool = Field(default=False, alias="told")


_LATENCIES = TypeAdapter(dict[str, DeviceLatency])


class Reporting:
    """Background thread that measures each version of a package once and reports it to the server.

    If the server is unreachable, the thread waits for it. Measurements are stored on disk.

    Args:
        package: The directory of the shipped package.
        path: The file for the measurements.
        config: Settings of the reports.
        journal: The log for outcomes and problems.
        trust: The keys by which a version has to be signed, or else is not measured; None for any.
        retry: The delay after a failure; the number of attempts is not limited.
        measure: Returns the milliseconds of an inference of a package.
    """

    def __init__(
        self,
        package: Path,
        path: Path,
        config: ReportingConfig,
        journal: Journal,
        *,
        trust: Trust | None = None,
        retry: Backoff = RETRY,
        measure: Callable[[Path], float] = measure_package,
    ) -> None:
        self._package = package
        self._path = path
        self._config = config
        self._journal = journal
        self._measure = measure
        self._trust = trust
        self._access = ServerAccess(config, DevicesClient, retry)
        self._thread: threading.Thread | None = None
        self._quiet_since: float | None = None
        self._failures = 0
        self._latencies: dict[str, DeviceLatency] = {}
        with suppress(OSError, ValidationError):
            self._latencies = _LATENCIES.validate_json(path.read_bytes())

    def observe(self, now: float, package: Manifest, cpu_available: float | None) -> None:
        """Measure or report the current version if it is due; called in each interval.

        Args:
            now: Seconds of the monotonic clock.
            package: Manifest of the current version.
            cpu_available: Idle share of the processors, 0 to 1; None if unknown.
        """
        quiet = cpu_available is not None and cpu_available >= self._config.free
        self._quiet_since = (self._quiet_since or now) if quiet else None
        latency = self._latencies.get(_key(package))
        if latency is None:
            due = self._quiet_since is not None and now - self._quiet_since >= self._config.quiet
        else:
            due = not latency.reported
        if due and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._work, name="mistify-reporting", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread after a running measurement; the next daemon reports its result."""
        self._access.stop()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        try:
            version = open_current(self._package)
            check_trusted(version, self._trust)
            package = version.manifest
            latency = self._latencies.get(_key(package)) or DeviceLatency(
                milliseconds=self._measure(version.directory)
            )
        except Exception as error:  # no failure of a package or a server may end the daemon
            if not self._access.stopped:
                self._journal.problem(_ABOUT, f"the package cannot be measured: {error}")
            self._failures += 1
            self._access.wait(self._failures)
            self._quiet_since = None
            return
        self._failures = 0
        self._keep(package, latency)
        self._access.repeat(lambda: self._report(package, latency))

    def _report(self, package: Manifest, latency: DeviceLatency) -> bool:
        """Report a latency to the server; return False if the report has to be repeated."""
        try:
            with self._access.connected() as client:
                outcome = str(
                    client.report(self._config.device, package.job, package.goal, latency.milliseconds)
                )
        except (MistifyError, OSError) as error:
            if self._access.stopped:
                return False
            if passes(error):
                self._journal.problem(_ABOUT, str(error))
                return False
            outcome = f"the server rejects the report: {error}"
        self._journal.problem(_ABOUT, None)
        self._journal.note("latency", outcome, goal=package.goal, job=package.job)
        self._keep(package, latency.model_copy(update={"reported": True}))
        return True

    def _keep(self, package: Manifest, latency: DeviceLatency) -> None:
        self._latencies = {**self._latencies, _key(package): latency}
        content = _LATENCIES.dump_python(self._latencies, mode="json", by_alias=True)
        with suppress(OSError):  # in that case the next daemon measures again
            write_json(self._path, content, durable=True)


def _key(package: Manifest) -> str:
    """Return the key of a package in the file; a tuned version shares the key, and latency, of its origin."""
    return f"{package.job}/{package.goal}"
