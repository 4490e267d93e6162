"""Interface of the fleet store."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from datetime import datetime

from mistify.fleet import DeviceReport


class FleetStore(ABC):
    """Store of the last reports of a tenant's devices. Each method is one transaction, as with `JobStore`."""

    @abstractmethod
    def all(self) -> list[DeviceReport]:
        """Return the last report of each device, without those that only a newer version can read."""

    @abstractmethod
    def seen(self) -> dict[str, datetime]:
        """Return the time of each device's last report, by the name of the device."""

    @abstractmethod
    def named(self, names: Collection[str]) -> list[DeviceReport]:
        """Return the last reports of some devices, without those that only a newer version can read."""

    @abstractmethod
    def put(self, reports: Iterable[DeviceReport]) -> None:
        """Store reports, each replacing the device's previous one."""

    @abstractmethod
    def forget(self, before: datetime) -> None:
        """Remove the devices that were last seen before a time."""
