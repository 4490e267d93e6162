"""Interface of the store of device reports."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import datetime

from mistify.fleet import DeviceReport


class FleetStore(ABC):
    """Store of the last report of each device; every method is one transaction, as with `JobStore`."""

    @abstractmethod
    def all(self) -> list[DeviceReport]:
        """Return the last report of each device."""

    @abstractmethod
    def put(self, reports: Iterable[DeviceReport]) -> None:
        """Keep reports, each in place of the device's last one."""

    @abstractmethod
    def forget(self, before: datetime) -> None:
        """Remove the devices that were last seen before a time."""
