"""The service of devices, without the wire: register, refine, list."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from mistify.costs.budget import latency_axis
from mistify.costs.catalogue import is_host
from mistify.costs.devices import Device, DeviceTable, check_table
from mistify.costs.profiles import MeasuredProfile, device_profile_name
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify_server.hardware.fitting import fitted
from mistify_server.hardware.host import kept_host, register_host
from mistify_server.store.devices import DeviceStore
from mistify_server.store.jobs import JobStore


def _now() -> datetime:
    return datetime.now(UTC)


class DeviceService:
    """Devices of one store. Every method raises `MistifyError`."""

    def __init__(self, devices: DeviceStore, jobs: JobStore, now: Callable[[], datetime] = _now) -> None:
        self._devices = devices
        self._jobs = jobs
        self._now = now

    async def register(self, table: DeviceTable) -> Device:
        """Keep a device, in place of an earlier one of that name. Running jobs keep their profiles.

        The server's own machine is kept for all stores on it.

        Raises:
            MistifyError: INVALID_CONFIG with every problem of the table, and nothing was kept; a table of the
                server's machine that was measured elsewhere among them.
        """
        check_table(table)
        if is_host(table.name):
            return (await asyncio.to_thread(register_host, table)).device
        profiles, settings = await asyncio.to_thread(fitted, table)
        device = Device(table.name, table.machine, table.runtime, tuple(settings), self._now())
        self._devices.put(device, table, profiles)
        return device

    async def report(self, device: str, job_id: str, goal_id: str, median_ms: float) -> tuple[float, float]:
        """Adjust the predictions for a device to the latency of a goal's package there.

        Returns:
            The predicted latency in milliseconds, and the new factor of the profile.

        Raises:
            MistifyError: NOT_FOUND, there is no such device or goal, nothing was predicted, or the device was
                measured again since; INVALID_CONFIG, it is no time.
        """
        if not (math.isfinite(median_ms) and median_ms > 0):
            problem = Problem("median_ms", f"{median_ms:g}", "a positive number", "measure it again")
            raise MistifyError(ErrorCode.INVALID_CONFIG, "the latency was not taken", [problem])
        goal = self._jobs.goal(job_id, goal_id)
        name = device_profile_name(device, goal.spec.quantization.precision.integer, goal.spec.threads)
        predicted = goal.achieved.get(latency_axis(name))
        # Of a large job, its batches take a second to read.
        batches = await asyncio.to_thread(self._jobs.batches, job_id)
        plan = next(state.plan for state in batches if state.plan.number == goal.batch)
        profile = plan.recipe.hardware.get(name)
        if predicted is None or not isinstance(profile, MeasuredProfile):
            message = f'nothing was predicted for "{goal_id}" on {device}; name it as the hardware of a goal'
            raise MistifyError(ErrorCode.NOT_FOUND, message)
        if not self._is_current(device, profile):
            message = (
                f'{device} was measured again since "{goal_id}" was predicted by the table before; '
                "report a package of a job that was submitted after that"
            )
            raise MistifyError(ErrorCode.NOT_FOUND, message)
        deviation = median_ms / (predicted / profile.factor)
        return predicted, self._devices.report(device, name, f"{job_id}/{goal_id}", deviation)

    def devices(self) -> list[Device]:
        """Return all devices by name, after this machine if it was measured."""
        host = kept_host()
        return [*([host.device] if host else []), *self._devices.all()]

    def _is_current(self, device: str, profile: MeasuredProfile) -> bool:
        """Check whether a job's profile has the device's current models, whatever its factor."""
        models = replace(profile, factor=1.0)
        return any(replace(known, factor=1.0) == models for known in self._devices.profiles(device))
