"""What the server does with devices, without the wire: register, list."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from mistify.devices import Device, DeviceTable, check_table
from mistify_server.devices.fitting import fitted
from mistify_server.store.devices import DeviceStore


def _now() -> datetime:
    return datetime.now(UTC)


class DeviceService:
    """Devices of one store. Every method raises `MistifyError`."""

    def __init__(self, devices: DeviceStore, now: Callable[[], datetime] = _now) -> None:
        self._devices = devices
        self._now = now

    async def register(self, table: DeviceTable) -> Device:
        """Keep a device, in place of an earlier one of that name. Jobs go on with what they have begun with.

        Raises:
            MistifyError: INVALID_CONFIG with every problem of the table, and nothing was kept.
        """
        check_table(table)
        profiles, settings = await asyncio.to_thread(fitted, table)
        device = Device(table.name, table.machine, table.runtime, tuple(settings), self._now())
        self._devices.put(device, table, profiles)
        return device

    def devices(self) -> list[Device]:
        """All devices, by name."""
        return self._devices.all()
