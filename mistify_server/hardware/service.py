"""The device service, independent of gRPC and HTTP: register, refine, list."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from mistify.costs.budget import latency_axis
from mistify.costs.catalogue import is_host
from mistify.costs.devices import Device, DeviceTable, check_table
from mistify.costs.profiles import MeasuredProfile, device_profile_name
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.times import utc_now
from mistify_server.hardware.fitting import fitted
from mistify_server.hardware.host import kept_host, register_host
from mistify_server.identity.callers import current_caller
from mistify_server.store.directory import Store


class DeviceService:
    """The measured devices of tenants, and the server's machine. Every method raises `MistifyError`.

    Calls only reach the devices and the jobs of their own tenant, and the server's machine.
    """

    def __init__(self, store: Store, now: Callable[[], datetime] = utc_now) -> None:
        self._of_tenant = store.of
        self._now = now

    @property
    def _store(self) -> Store:
        """Return the store of the caller's tenant."""
        return self._of_tenant(current_caller().tenant)

    async def register(self, table: DeviceTable) -> Device:
        """Register a device, replacing one with the same name. Running jobs keep their profiles.

        The server's own machine is registered for all stores and tenants on it, by callers of `default`.

        Raises:
            MistifyError: INVALID_CONFIG with every problem of the table, including a table for the server's
                machine that was measured elsewhere; PERMISSION_DENIED, it is for the server's machine, and
                the caller is of another tenant; nothing was stored.
        """
        if is_host(table.name):
            current_caller().check_operator("measures the server's machine")
        check_table(table)
        if is_host(table.name):
            return (await asyncio.to_thread(register_host, table)).device
        profiles, settings = await asyncio.to_thread(fitted, table)
        device = Device(table.name, table.machine, table.runtime, tuple(settings), self._now())
        await asyncio.to_thread(self._store.devices.put, device, table, profiles)
        return device

    async def report(self, device: str, job_id: str, goal_id: str, median_ms: float) -> tuple[float, float]:
        """Adjust the predictions for a device to the measured latency of a goal's package.

        Returns:
            The predicted latency in milliseconds, and the new factor of the profile.

        Raises:
            MistifyError: NOT_FOUND, there is no such device or goal, there is no prediction, or the device
                has been measured again since; INVALID_CONFIG, the latency is invalid.
        """
        if not (math.isfinite(median_ms) and median_ms > 0):
            problem = Problem("median_ms", f"{median_ms:g}", "a positive number", "measure it again")
            raise MistifyError(ErrorCode.INVALID_CONFIG, "the latency was rejected", [problem])
        # Reading the batches of a large job takes a second.
        return await asyncio.to_thread(self._adjusted, device, job_id, goal_id, median_ms)

    def devices(self) -> list[Device]:
        """Return the devices of the caller's tenant by name, preceded by this machine if it is measured."""
        host = kept_host()
        return [*([host.device] if host else []), *self._store.devices.all()]

    def _adjusted(self, device: str, job_id: str, goal_id: str, median_ms: float) -> tuple[float, float]:
        """Adjust the predictions for a device, as described in `report`."""
        store = self._store
        goal = store.jobs.goal(job_id, goal_id)
        name = device_profile_name(device, goal.spec.quantization.precision.integer, goal.spec.threads)
        predicted = goal.achieved.get(latency_axis(name))
        plan = next(state.plan for state in store.jobs.batches(job_id) if state.plan.number == goal.batch)
        profile = plan.recipe.hardware.get(name)
        if predicted is None or not isinstance(profile, MeasuredProfile):
            message = (
                f'there is no prediction for "{goal_id}" on {device}; name the device as hardware of a goal'
            )
            raise MistifyError(ErrorCode.NOT_FOUND, message)
        if not self._is_current(device, profile):
            message = (
                f'{device} has been measured again since the prediction for "{goal_id}"; '
                "report a package from a later job"
            )
            raise MistifyError(ErrorCode.NOT_FOUND, message)
        deviation = median_ms / (predicted / profile.factor)
        return predicted, store.devices.report(device, name, f"{job_id}/{goal_id}", deviation)

    def _is_current(self, device: str, profile: MeasuredProfile) -> bool:
        """Check whether a job's profile matches the device's current models, ignoring the factor."""
        models = replace(profile, factor=1.0)
        return any(replace(known, factor=1.0) == models for known in self._store.devices.profiles(device))
