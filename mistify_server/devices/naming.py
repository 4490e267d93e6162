"""Lookup of the measured devices that goals name."""

from collections.abc import Collection

from mistify.config.hardware import unknown_hardware
from mistify.config.reading import CollectiveBatch
from mistify.costs.profiles import MeasuredProfile
from mistify.errors import Problem
from mistify_server.store.devices import DeviceStore


def find_devices(
    batch: CollectiveBatch, devices: DeviceStore, problems: list[Problem], known: Collection[str] = ()
) -> tuple[MeasuredProfile, ...]:
    """Return the profiles of the devices that a batch names, at every precision, and add problems.

    Args:
        batch: of goals.
        devices: where they are looked up.
        problems: gets one for each goal with a name that nobody knows.
        known: profiles that need not be looked up.
    """
    profiles_of: dict[str, list[MeasuredProfile]] = {}
    for index, config in zip(batch.indices, batch.configs, strict=True):
        name = config.device
        if name is None or name in known:
            continue
        profiles_of[name] = profiles_of.get(name) or devices.profiles(name)
        if not profiles_of[name]:
            wrong = unknown_hardware(name, (device.name for device in devices.all()))
            problems.append(wrong.problem(f"[{index}].hardware"))
    return tuple(profile for profiles in profiles_of.values() for profile in profiles)
