"""What packages take on the device, told to the server once they were measured undisturbed (paper 4.1, 6)."""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from mistify.errors import MistifyError
from mistify.files import write_json
from mistify.package.manifest import Manifest
from mistify_client.monitor.config import ReportingConfig
from mistify_client.monitor.replacement.access import RETRY, ServerAccess, passes
from mistify_client.monitor.state.journal import Journal
from mistify_client.profiling.measuring import measure_package
from mistify_client.rpc.devices import DevicesClient
from mistify_client.rpc.retry import Backoff
from mistify_client.runtime.versions import current

_ABOUT = "reporting"


class Taken(BaseModel):
    """What an inference of a package took, and whether the server knows, or wants to know nothing of it."""

    milliseconds: float
    told: bool = False


_KNOWN = TypeAdapter(dict[str, Taken])


class Reporting:
    """Measures each version of a package once, and tells the server, in a thread of its own.

    A server that is away is waited for; what was measured lasts on disk.

    Args:
        package: the directory of the package that was shipped.
        path: of the file for what was measured.
        config: of reporting.
        journal: where it tells what came of it, and what goes wrong.
        retry: how long to wait after a failure; it never gives up.
        measure: what a package takes with the fastest of some numbers of threads, in milliseconds.
    """

    def __init__(
        self,
        package: Path,
        path: Path,
        config: ReportingConfig,
        journal: Journal,
        *,
        retry: Backoff = RETRY,
        measure: Callable[[Path, Iterable[int]], float] = measure_package,
    ) -> None:
        self._package = package
        self._path = path
        self._config = config
        self._journal = journal
        self._measure = measure
        self._access = ServerAccess(config, DevicesClient, retry)
        self._thread: threading.Thread | None = None
        self._quiet_since: float | None = None
        self._failures = 0
        self._known: dict[str, Taken] = {}
        with suppress(OSError, ValidationError):
            self._known = _KNOWN.validate_json(path.read_bytes())

    def observe(self, now: float, package: Manifest, cpu_available: float | None) -> None:
        """Begin what there is to do, once the moment has come; to be called again and again.

        Args:
            now: seconds of the monotonic clock.
            package: the current version.
            cpu_available: the share of the processors that is free; None where that is not known.
        """
        quiet = cpu_available is not None and cpu_available >= self._config.free
        self._quiet_since = (self._quiet_since or now) if quiet else None
        taken = self._known.get(_key(package))
        if taken is None:
            due = self._quiet_since is not None and now - self._quiet_since >= self._config.quiet
        else:
            due = not taken.told
        if due and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._work, name="mistify-reporting", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread, once it has measured; the next daemon tells what was."""
        self._access.stop()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        try:
            directory = current(self._package)
            package = Manifest.load(directory)
            taken = self._known.get(_key(package)) or Taken(
                milliseconds=self._measure(directory, self._config.threads or self._predicted_threads())
            )
        except Exception as error:  # whatever a package or a server does: the daemon goes on
            if not self._access.stopped:
                self._journal.problem(_ABOUT, f"the package cannot be measured: {error}")
            self._failures += 1
            self._access.wait(self._failures)
            self._quiet_since = None
            return
        self._failures = 0
        self._keep(package, taken)
        failures = 0
        while not self._access.stopped and not self._told(package, taken):
            failures += 1
            self._access.wait(failures)

    def _predicted_threads(self) -> tuple[int, ...]:
        """Those of which the server's predictions are the fastest."""
        with self._access.connected() as client:
            return client.threads(self._config.device)

    def _told(self, package: Manifest, taken: Taken) -> bool:
        """Whether the server knows now, or wants to know nothing of it."""
        try:
            with self._access.connected() as client:
                outcome = str(
                    client.report(self._config.device, package.job, package.goal, taken.milliseconds)
                )
        except (MistifyError, OSError) as error:
            if self._access.stopped:
                return False
            if passes(error):
                self._journal.problem(_ABOUT, str(error))
                return False
            outcome = f"the server takes no report: {error}"
        self._journal.problem(_ABOUT, None)
        self._journal.note("latency", outcome, goal=package.goal, job=package.job)
        self._keep(package, taken.model_copy(update={"told": True}))
        return True

    def _keep(self, package: Manifest, taken: Taken) -> None:
        self._known = {**self._known, _key(package): taken}
        with suppress(OSError):  # then the next daemon measures again
            write_json(self._path, _KNOWN.dump_python(self._known, mode="json"), durable=True)


def _key(package: Manifest) -> str:
    """A tuned version takes what the one before it took."""
    return f"{package.job}/{package.goal}"
