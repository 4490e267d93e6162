"""Interface of the device store."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mistify.costs.devices import Device, DeviceTable
from mistify.costs.profiles import MeasuredProfile


class DeviceStore(ABC):
    """Store of a tenant's devices, their measurements, and the profiles fitted to the measurements.

    As with `JobStore`, every method is a crash-safe transaction, takes milliseconds, and raises
    `MistifyError` UNAVAILABLE if the disk is full, read-only or broken, and STORE_VERSION if only a newer
    version can read a device.
    """

    @abstractmethod
    def put(self, device: Device, table: DeviceTable, profiles: Sequence[MeasuredProfile]) -> None:
        """Store a device, replacing an earlier one with the same name."""

    @abstractmethod
    def report(self, device: str, profile: str, package: str, deviation: float) -> float:
        """Store the ratio of a package's measured to a profile's predicted latency, replacing an earlier one.

        Returns:
            The profile's new factor.

        Raises:
            MistifyError: NOT_FOUND, there is no such device, or it has no such profile.
        """

    @abstractmethod
    def all(self) -> list[Device]:
        """Return all devices, by name, without those that only a newer version can read."""

    @abstractmethod
    def profiles(self, name: str) -> list[MeasuredProfile]:
        """Return the profiles of a device, one for each precision and number of threads.

        The list is empty if there is no such device.
        """

    @abstractmethod
    def table(self, name: str) -> DeviceTable:
        """Return the measurements of a device.

        Raises:
            MistifyError: NOT_FOUND, there is no such device.
        """
