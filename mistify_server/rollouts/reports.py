"""The reports of devices: stored, answered, and judged. Independent of gRPC and HTTP."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from mistify.errors import MistifyError, is_outage
from mistify.fleet import DeviceStatus
from mistify.rollouts import Instruction
from mistify_server.fleet import Fleet
from mistify_server.grouped_calls import GroupedCalls
from mistify_server.identity.tenants import ByTenant
from mistify_server.jobs.store_writer import completed
from mistify_server.rollouts.service import RolloutService
from mistify_server.store.directory import Store

#: Interval between updates, by which the reports that other servers have received become known.
_INTERVAL_SECONDS: Final = 5.0

#: Seconds between two writes of reports: each device reports once a minute, and each commit waits for the
#: disk.
_WRITE_SECONDS: Final = 0.1

#: Maximum number of reports that are written together; after an outage, a whole fleet reports at once.
_MOST_TOGETHER: Final = 2_000

_log = logging.getLogger(__name__)


class DeviceReports:
    """The reports of a tenant's devices. Use `answer` from one event loop.

    A report is answered once it is in the store, so that no server loses it: that a device has begun to
    install a package may be the last that it reports. What it should run is decided after that, by the
    roll-outs that are then in the store, so that no server answers with one that another has stopped.
    """

    def __init__(self, fleet: Fleet, rollouts: RolloutService) -> None:
        self._fleet = fleet
        self._rollouts = rollouts
        self._together: GroupedCalls[DeviceStatus, Instruction] = GroupedCalls(
            self._answers, _MOST_TOGETHER, pause_seconds=_WRITE_SECONDS
        )

    async def answer(self, status: DeviceStatus) -> Instruction:
        """Store the status of a device; return which package it should run.

        Raises:
            MistifyError: INVALID_CONFIG or NO_ROOM, as with `Fleet.report`; UNAVAILABLE, the store cannot be
                used, and the device has to repeat its report.
        """
        return await self._together(status)

    def _answers(self, statuses: Sequence[DeviceStatus]) -> list[Instruction | Exception]:
        refused = [self._refused(status) for status in statuses]
        self._fleet.write()
        self._rollouts.refresh()
        answers = zip(statuses, refused, strict=True)
        return [error or self._rollouts.instruction(status) for status, error in answers]

    def _refused(self, status: DeviceStatus) -> MistifyError | None:
        """Report a status to the fleet; return why it is refused."""
        try:
            self._fleet.report(status)
        except MistifyError as error:
            return error
        return None

    def update(self) -> None:
        """Take over what other servers have received, and let roll-outs go on or stop.

        Raises:
            MistifyError: UNAVAILABLE, the store cannot be used; the next call retries.
        """
        self._fleet.refresh()
        self._rollouts.advance()
        self._fleet.forget_silent()


def fleet_services(
    store: Store,
) -> tuple[ByTenant[Fleet], ByTenant[RolloutService], ByTenant[DeviceReports]]:
    """Return the fleet of each tenant, its roll-outs, and what answers reports of its devices."""
    tenants = store.tenants()
    fleets = ByTenant(lambda tenant: Fleet(store.of(tenant).fleet), tenants)

    def rollouts_of(tenant: str) -> RolloutService:
        own = store.of(tenant)
        return RolloutService(own.rollouts, own.jobs, fleets.of(tenant))

    rollouts = ByTenant(rollouts_of, tenants)
    reports = ByTenant(lambda tenant: DeviceReports(fleets.of(tenant), rollouts.of(tenant)), tenants)
    return fleets, rollouts, reports


async def keep_updated(reports: ByTenant[DeviceReports]) -> None:
    """Update the reports of all tenants every few seconds until cancelled."""
    while True:
        await asyncio.sleep(_INTERVAL_SECONDS)
        for each in reports.all():
            try:
                await completed(asyncio.to_thread(each.update))
            except MistifyError as error:
                level = logging.WARNING if is_outage(error) else logging.ERROR
                _log.log(level, "the reports of devices cannot be updated: %s", error)
            except Exception:  # the others must still be judged
                _log.exception("the reports of devices cannot be updated because of an internal error")
