"""Lookup of the measured devices that goals name."""

from collections.abc import Collection, Iterable

from mistify.config.hardware import unknown_hardware
from mistify.config.porting import PortingConfig
from mistify.config.reading import CollectiveBatch
from mistify.costs.profiles import MeasuredProfile
from mistify.errors import Problem
from mistify.parsing.validation import InvalidValue
from mistify_server.store.devices import DeviceStore


def find_devices(
    batch: CollectiveBatch, devices: DeviceStore, problems: list[Problem], known: Collection[str] = ()
) -> tuple[MeasuredProfile, ...]:
    """Return the profiles of the devices that a batch names, for the goals' threads at every precision.

    Args:
        devices: The store of measured devices.
        problems: Receives one for each goal with an unknown device name, or a number of threads with which
            its device was not measured.
        known: Names of profiles to skip.
    """
    chosen: dict[str, MeasuredProfile] = {}
    for index, config in zip(batch.indices, batch.configs, strict=True):
        name = config.device
        if name is None or config.hardware_name in known:
            continue
        profiles = devices.profiles(name)
        own = {profile.name: profile for profile in profiles if profile.threads == config.threads}
        chosen |= own
        if not profiles:
            wrong = unknown_hardware(name, (device.name for device in devices.all()))
            problems.append(wrong.problem(f"[{index}].hardware"))
        elif not own:
            problems.append(_unmeasured(config, profiles).problem(f"[{index}].threads"))
    return tuple(chosen.values())


def _unmeasured(config: PortingConfig, profiles: Iterable[MeasuredProfile]) -> InvalidValue:
    """Return the problem of a goal with a number of threads for which a device has no measurements."""
    measured = sorted({profile.threads for profile in profiles})
    counts = ",".join(map(str, sorted({*measured, config.threads})))
    return InvalidValue(
        config.threads,
        f"{' or '.join(map(str, measured))}, with which {config.device} was measured",
        f'write "threads": {measured[0]}, or measure the device again: mistify profile-device '
        f"--name {config.device} --threads {counts}",
    )
