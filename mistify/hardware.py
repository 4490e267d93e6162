"""The device classes that configs can name, by their data sheets (paper 4.1, Table 1)."""

import re
from collections.abc import Iterable
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, model_validator

from mistify.profiles import NominalProfile
from mistify.quantities import format_bandwidth, format_compute_power, parse_bandwidth, parse_compute_power
from mistify.quantization import Quantization
from mistify.validation import InvalidValue, Settings, unknown_name

_SEPARATORS = re.compile(r"[\s_]+")
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")


#: The machine that the server runs on. Nominal figures of one core; the server calibrates them by measuring.
HOST = NominalProfile("host", 50.0, 10.0)

_PROFILES = (
    HOST,
    # Table 1 of the paper.
    NominalProfile("v100", 112_000.0, 900.0),
    NominalProfile("2080", 11_700.0, 480.0),
    NominalProfile("jetson-tx2", 1_500.0, 58.0),
    NominalProfile("jetson-nano", 470.0, 25.0),
    NominalProfile("raspberry-pi", 6.0, 8.5),
    # Table 1 has no bandwidth for it: that of the M.2 accelerator's PCIe Gen2 x1 link (Coral data sheet).
    NominalProfile("edge-tpu", 4_000.0, 0.5),
    # NVIDIA data sheets: single precision without tensor cores, and memory bandwidth.
    NominalProfile("a100", 19_500.0, 1_555.0),
    NominalProfile("t4", 8_100.0, 320.0),
    # NVIDIA Jetson data sheets: CUDA cores x 2 x highest clock, and memory bandwidth.
    NominalProfile("jetson-agx-orin", 5_325.0, 204.8),
    NominalProfile("jetson-orin-nano", 1_280.0, 68.0),
    # Raspberry Pi product briefs: cores x clock x single-precision operations per cycle (8 on the
    # Cortex-A72, 16 on the Cortex-A76), and 32 bits at 3,200 and 4,267 MT/s.
    NominalProfile("raspberry-pi-4", 48.0, 12.8),
    NominalProfile("raspberry-pi-5", 153.6, 17.1),
)
_CATALOGUE = MappingProxyType({profile.name: profile for profile in _PROFILES})


def catalogue() -> MappingProxyType[str, NominalProfile]:
    """The known profiles by name, read-only."""
    return _CATALOGUE


def _normalise_name(given: object) -> object:
    """Hardware names in any case, with spaces or underscores for hyphens."""
    if not isinstance(given, str):
        return given
    name = _SEPARATORS.sub("-", given.strip().lower())
    if not _NAME.fullmatch(name):
        raise InvalidValue(given, "a hardware name", "use up to 64 letters, digits, dots and hyphens")
    if name in set(Quantization):
        raise InvalidValue(given, "a hardware name", "call it something that is no precision")
    return name


class HardwareConfig(Settings):
    """The `hardware` of a config: a name, or compute power and memory bandwidth.

    A profile of one's own can have a name, also that of a known profile that it then replaces;
    without a name it is called after its figures. A name alone is that of a known profile, or of a device
    that was measured, which the server knows.
    """

    name: Annotated[
        str | None,
        BeforeValidator(_normalise_name),
        Field(description="a hardware name", examples=["jetson-nano"]),
    ] = None
    compute_power: (
        Annotated[float, PlainValidator(parse_compute_power), PlainSerializer(format_compute_power)] | None
    ) = None
    memory_bandwidth: (
        Annotated[float, PlainValidator(parse_bandwidth), PlainSerializer(format_bandwidth)] | None
    ) = None

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        _normalise_name(given)
        return {"name": given}

    @model_validator(mode="after")
    def _complete(self) -> "HardwareConfig":
        figures = [self.compute_power, self.memory_bandwidth]
        if figures.count(None) == 1 or (self.name is None and None in figures):
            raise InvalidValue(
                self.model_dump(exclude_none=True),
                "a known name, or both compute_power and memory_bandwidth",
                f"known names are {', '.join(_CATALOGUE)}",
            )
        return self

    @property
    def nominal(self) -> NominalProfile | None:
        """The profile that it asks for; None where that is a device that was measured."""
        power, bandwidth = self.compute_power, self.memory_bandwidth
        if power is not None and bandwidth is not None:
            name = self.name or f"{power:g}gflops-{bandwidth:g}gbs".replace("+", "")
            return NominalProfile(name, power, bandwidth)
        return _CATALOGUE.get(self.name or HOST.name)


def unknown_hardware(name: str, devices: Iterable[str]) -> InvalidValue:
    """What to tell of a name that is neither in the catalogue nor that of a measured device."""
    devices = sorted(devices)
    measured = f"; of the measured devices {', '.join(devices)}" if devices else ""
    _, fix = unknown_name(name, [*_CATALOGUE, *devices])
    return InvalidValue(
        name,
        f"one of {', '.join(sorted(_CATALOGUE))}{measured}; or compute_power and memory_bandwidth",
        f"{fix}, or measure the device: mistify profile-device --name {name}",
    )
