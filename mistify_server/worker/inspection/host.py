"""This machine as a measured device (paper 4.1)."""

import hashlib
from collections.abc import Callable
from importlib.metadata import version
from typing import Final

from pydantic import TypeAdapter, ValidationError

from executors.timing import activity
from mistify.costs.catalogue import HOST
from mistify.costs.devices import DeviceTable
from mistify.costs.profiles import MeasuredProfile
from mistify.files import cache_directory, locked, write_bytes
from mistify.jobs.job import ProgressUpdate
from mistify.machine import machine
from mistify.profiling.measuring import Progress, measure_device
from mistify_server.devices.fitting import fitted
from mistify_server.tasks.messages import OnProgress

#: Of measuring, in seconds; longer on machines that take longer to run each network once.
_BUDGET_SECONDS: Final = 20.0

#: What a profile depends on besides the machine: what runs its networks, and what chooses them.
_PACKAGES: Final = ("ai-edge-litert", "mistify-porting")

_PROFILES: Final = TypeAdapter(tuple[MeasuredProfile, MeasuredProfile])


def _measured(progress: Progress) -> DeviceTable:
    return measure_device(HOST.name, [1], budget_seconds=_BUDGET_SECONDS, progress=progress)


@activity("measuring")
def host_profiles(
    on_progress: OnProgress, measure: Callable[[Progress], DeviceTable] = _measured
) -> tuple[MeasuredProfile, MeasuredProfile]:
    """Return this machine's profiles with one thread, in float32 and int8.

    They are measured once, and kept in the user's cache until the processor, the runtime or Mistify changes.

    Args:
        on_progress: Takes the progress of measuring, which takes half a minute.
        measure: Measures this machine.
    """
    directory = cache_directory() / "hosts"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{_digest()}.json"
    with locked(directory):  # other workers wait, and measuring is not disturbed by theirs
        try:
            return _PROFILES.validate_json(path.read_bytes())
        except (FileNotFoundError, ValidationError):
            table = measure(lambda share: on_progress(_progress(share)))
        float32, int8 = fitted(table)[0]
        write_bytes(path, _PROFILES.dump_json((float32, int8)))
        return float32, int8


def _progress(share: float) -> ProgressUpdate:
    return ProgressUpdate(stage="profiling this machine", step=round(100 * share), total_steps=100)


def _digest() -> str:
    named = [machine(), *(f"{package} {version(package)}" for package in _PACKAGES)]
    return hashlib.sha256("\n".join(named).encode()).hexdigest()[:16]
