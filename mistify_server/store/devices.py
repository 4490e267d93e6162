"""Interface of the store of devices."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mistify.costs.devices import Device, DeviceTable
from mistify.costs.profiles import MeasuredProfile


class DeviceStore(ABC):
    """Store of devices, the measurements made on them, and the profiles fitted to those.

    As with `JobStore`, every method is one transaction that survives a crash, takes milliseconds, and raises
    `MistifyError` UNAVAILABLE where the disk is full, read-only or broken.
    """

    @abstractmethod
    def put(self, device: Device, table: DeviceTable, profiles: Sequence[MeasuredProfile]) -> None:
        """Keep a device, in place of an earlier one of the same name."""

    @abstractmethod
    def report(self, device: str, profile: str, package: str, deviation: float) -> float:
        """Keep the ratio of a package's latency to that of a profile's models, in place of an earlier one.

        Returns:
            The profile's new factor.

        Raises:
            MistifyError: NOT_FOUND, there is no such device, or it has no such profile.
        """

    @abstractmethod
    def all(self) -> list[Device]:
        """Return all devices, by name."""

    @abstractmethod
    def profiles(self, name: str) -> list[MeasuredProfile]:
        """Return the profiles of a device, one for each precision and number of threads.

        The list is empty where there is no such device.
        """

    @abstractmethod
    def table(self, name: str) -> DeviceTable:
        """Return the measurements of a device.

        Raises:
            MistifyError: NOT_FOUND, there is none of that name.
        """
