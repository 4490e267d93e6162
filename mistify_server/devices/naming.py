"""Finding the measured devices that goals name."""

from collections.abc import Collection

from mistify.config.batch import CollectiveBatch
from mistify.config.hardware import unknown_hardware
from mistify.costs.profiles import MeasuredProfile
from mistify.errors import Problem
from mistify_server.store.devices import DeviceStore


def find_devices(
    batch: CollectiveBatch, devices: DeviceStore, problems: list[Problem], known: Collection[str] = ()
) -> tuple[MeasuredProfile, ...]:
    """The profiles of the devices that a batch names, at every precision; problems are added.

    Args:
        batch: of goals.
        devices: where they are looked up.
        problems: gets one for each goal with a name that nobody knows.
        known: profiles that need not be looked up.
    """
    found: dict[str, list[MeasuredProfile]] = {}
    for index, config in zip(batch.indices, batch.configs, strict=True):
        name = config.device
        if name is None or name in known:
            continue
        found[name] = found.get(name) or devices.profiles(name)
        if not found[name]:
            wrong = unknown_hardware(name, (device.name for device in devices.all()))
            problems.append(wrong.problem(f"[{index}].hardware"))
    return tuple(profile for profiles in found.values() for profile in profiles)
