"""What a store keeps of devices, and how it is asked."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mistify.costs.devices import Device, DeviceTable
from mistify.costs.profiles import MeasuredProfile


class DeviceStore(ABC):
    """Keeps devices with what was measured on them, and what was made of that.

    As with `JobStore`, every method is one transaction that survives a crash, takes milliseconds, and raises
    `MistifyError` UNAVAILABLE where the disk is full, read-only or broken.
    """

    @abstractmethod
    def put(self, device: Device, table: DeviceTable, profiles: Sequence[MeasuredProfile]) -> None:
        """Keep a device, in place of an earlier one of that name."""

    @abstractmethod
    def report(self, device: str, profile: str, package: str, deviation: float) -> float:
        """Keep how many times as long as by a profile's models a package took, in place of the last time.

        Returns:
            The factor that the profile then has.

        Raises:
            MistifyError: NOT_FOUND, there is no such device, or it has no such profile.
        """

    @abstractmethod
    def all(self) -> list[Device]:
        """All devices, by name."""

    @abstractmethod
    def profiles(self, name: str) -> list[MeasuredProfile]:
        """The profiles of a device, one for each precision; none where there is no such device."""

    @abstractmethod
    def table(self, name: str) -> DeviceTable:
        """What was measured on a device.

        Raises:
            MistifyError: NOT_FOUND, there is none of that name.
        """
