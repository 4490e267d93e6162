"""This machine as a measured device (paper 4.1)."""

from collections.abc import Callable
from functools import partial
from typing import Final

from executors.timing import activity
from mistify.costs.catalogue import HOST
from mistify.costs.devices import DeviceTable
from mistify.costs.profiles import MeasuredProfile
from mistify.jobs.job import ProgressUpdate
from mistify.profiling.isolated import measure_isolated
from mistify.profiling.measuring import Progress
from mistify_server.hardware.host import measured_host
from mistify_server.tasks.messages import OnProgress

#: Time budget for measuring in seconds; slow machines exceed it in order to run each network once.
_BUDGET_SECONDS: Final = 20.0


def _measured(progress: Progress) -> DeviceTable:
    return measure_isolated(HOST.name, [1], budget_seconds=_BUDGET_SECONDS, progress=progress)


@activity("measuring")
def host_profiles(
    on_progress: OnProgress, measure: Callable[[Progress], DeviceTable] = _measured
) -> tuple[MeasuredProfile, ...]:
    """Return this machine's profiles for each precision and number of threads, including one thread.

    Measuring takes half a minute, unless stored profiles exist (`mistify_server.hardware.host`).

    Args:
        on_progress: Receives the progress.
        measure: Measures this machine.
    """
    return measured_host(partial(measure, lambda share: on_progress(_progress(share)))).profiles


def _progress(share: float) -> ProgressUpdate:
    return ProgressUpdate(stage="profiling this machine", step=round(100 * share), total_steps=100)
