"""The `hardware` of a config: a device class, a measured device, or your own figures."""

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, model_validator

from mistify.costs.catalogue import _CATALOGUE, HOST, data_sheet
from mistify.costs.profiles import NominalProfile
from mistify.costs.quantization import Quantization
from mistify.parsing.quantities import (
    format_bandwidth,
    format_compute_power,
    parse_bandwidth,
    parse_compute_power,
)
from mistify.parsing.validation import InvalidValue, Settings, unknown_name

_SEPARATORS = re.compile(r"[\s_]+")
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")


def _normalise_name(value: object) -> object:
    """Normalise a hardware name: any case, with spaces or underscores instead of hyphens."""
    if not isinstance(value, str):
        return value
    name = _SEPARATORS.sub("-", value.strip().lower())
    if not _NAME.fullmatch(name):
        raise InvalidValue(value, "a hardware name", "use up to 64 letters, digits, dots and hyphens")
    if name in set(Quantization):
        raise InvalidValue(value, "a hardware name", "do not name it after a precision")
    return name


class HardwareConfig(Settings):
    """The `hardware` of a config: a name, or compute power and memory bandwidth.

    Your own figures can have a name, even that of a known profile, which they then replace; without a name
    they are named after the figures. A name alone refers to a known profile or to a device measured on the
    server.

    Attributes:
        name: A device class, a measured device, or a name for figures of your own.
        compute_power: Peak of the device.
        memory_bandwidth: Peak of the device's memory.
    """

    name: Annotated[
        str | None,
        BeforeValidator(_normalise_name),
        Field(description="a hardware name", examples=["jetson-nano"]),
    ] = None
    compute_power: (
        Annotated[float, PlainValidator(parse_compute_power), PlainSerializer(format_compute_power)] | None
    ) = Field(default=None, description="a compute power", examples=["10GFLOP/s"])
    memory_bandwidth: (
        Annotated[float, PlainValidator(parse_bandwidth), PlainSerializer(format_bandwidth)] | None
    ) = Field(default=None, description="a memory bandwidth", examples=["8.5GB/s"])

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

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
        """The profile it describes; None for a measured device."""
        power, bandwidth = self.compute_power, self.memory_bandwidth
        if power is not None and bandwidth is not None:
            name = self.name or f"{power:g}gflops-{bandwidth:g}gbs".replace("+", "")
            return data_sheet(name, power, bandwidth)
        return _CATALOGUE.get(self.name or HOST.name)


def unknown_hardware(name: str, devices: Iterable[str]) -> InvalidValue:
    """Return the problem of a name that is neither in the catalogue nor a measured device."""
    devices = sorted(devices)
    measured = f"; of the measured devices {', '.join(devices)}" if devices else ""
    _, fix = unknown_name(name, [*_CATALOGUE, *devices])
    return InvalidValue(
        name,
        f"one of {', '.join(sorted(_CATALOGUE))}{measured}; or compute_power and memory_bandwidth",
        f"{fix}, or measure the device: mistify profile-device --name {name}",
    )
