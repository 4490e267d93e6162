"""Parsing and formatting of the quantities in configs: "30ms", "5G", "0.5GB", "0.80", "0.5x".

Units are decimal (1 KB is 1,000 bytes; KiB, MiB and GiB are supported too). Numbers without a unit are
accepted everywhere: milliseconds, pieces, bytes, shares, GFLOP/s, GB/s. Conversion uses decimal arithmetic,
so that a number formatted with all digits is parsed back exactly.
"""

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from mistify.parsing.validation import InvalidValue

__all__ = ["BYTES", "COUNT", "ENERGY", "PLAIN", "TIME", "QuantityKind", "measured_in"]

_LITERAL = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)\s*([^\s0-9.]*)\s*")
_UNIT = re.compile(r"[^\W\d_][^\s0-9.]{0,15}|%")
_LONGEST = 400


@dataclass(frozen=True)
class Quantity:
    """A limit: absolute in the base unit of its kind, or relative, a multiple of the source model's cost."""

    value: float
    relative: bool = False

    def resolve(self, source: float) -> float:
        """Return the absolute limit for the source model's cost, a finite number above 0."""
        if not self.relative:
            return self.value
        return min(max(self.value * source, sys.float_info.min), sys.float_info.max)


@dataclass(frozen=True)
class QuantityKind:
    """A kind of quantity: its units with their sizes; the base unit, for plain numbers, has size 1.

    Attributes:
        expected: Description in errors.
        units: Unit -> size; "" is the unit of plain numbers.
        written: Units used for formatting, ascending.
        relative: Whether "0.5x" of the source model is allowed.
        whole: Whether amounts are whole numbers of the base unit.
    """

    expected: str
    units: Mapping[str, Decimal]
    written: tuple[str, ...]
    relative: bool = False
    whole: bool = False

    @property
    def plain(self) -> str:
        """The name of the base unit; empty if it has none."""
        return next((unit for unit, size in self.units.items() if unit and size == 1), "")

    def parse(self, raw: object) -> Quantity:
        """Parse a number or a text.

        Raises:
            InvalidValue: Wrong type, unknown unit, or not above 0 and finite.
        """
        number, unit = self._split(raw)
        if unit == "x" and self.relative:
            return Quantity(self._positive(number, raw), relative=True)
        if unit not in self.units:
            known = [*filter(None, self.units), *(["x"] if self.relative else [])]
            raise InvalidValue(raw, self.expected, f"the unit {unit!r} is unknown, use {', '.join(known)}")
        return Quantity(self._positive(number * self.units[unit], raw))

    def format(self, value: Quantity | float, digits: int | None = None) -> str:
        """Format a value in the largest unit that keeps the number at 1 or above; see `format_time`."""
        quantity = value if isinstance(value, Quantity) else Quantity(value)
        number = Decimal(
            repr(float(quantity.value)) if digits is None else f"{quantity.value:.{digits - 1}e}"
        )
        if quantity.relative:
            return f"{_plain(number)}x"
        unit = next((u for u in reversed(self.written) if self.units[u] <= abs(number)), self.written[0])
        return f"{_plain(number / self.units[unit])}{unit}"

    def _split(self, raw: object) -> tuple[Decimal, str]:
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            raise InvalidValue(raw, self.expected, "write a number or a text")
        if not isinstance(raw, str):
            return Decimal(repr(raw)), ""
        match = _LITERAL.fullmatch(raw) if len(raw) <= _LONGEST else None
        if match is None:
            raise InvalidValue(raw, self.expected, "write a number followed by its unit")
        return Decimal(match[1]), match[2]

    def _positive(self, number: Decimal, raw: object) -> float:
        value = float(number)
        if not math.isfinite(value):
            raise InvalidValue(raw, self.expected, "the number has to be finite")
        if value <= 0:
            raise InvalidValue(raw, self.expected, "the number has to be above 0")
        return value


def _plain(number: Decimal) -> str:
    """Format a number without exponent and without trailing zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _units(**sizes: str) -> Mapping[str, Decimal]:
    return {"": Decimal(1)} | {unit: Decimal(size) for unit, size in sizes.items()}


def sized(units: Mapping[str, float]) -> Mapping[str, Decimal]:
    """Return units by name with their sizes in decimal notation, ascending."""
    names = sorted(units, key=lambda name: (units[name], name))
    return {name: Decimal(repr(float(units[name]))) for name in names}


def measured_in(units: Mapping[str, float]) -> QuantityKind:
    """Return a custom kind: `measured_in({"uJ": 1e-3, "mJ": 1, "J": 1e3})`; its limits may be relative.

    Args:
        units: Unit -> size; plain numbers are in the unit of size 1.

    Raises:
        ValueError: A name that cannot be parsed, a size that is not above 0, or no unit of size 1.
    """
    sizes = sized(units)
    plain = next((name for name, size in sizes.items() if size == 1), None)
    if plain is None or not all(size > 0 and size.is_finite() for size in sizes.values()):
        raise ValueError(f"the units {dict(units)} need sizes above 0, one of which is 1")
    unreadable = [name for name in units if not _UNIT.fullmatch(name) or name == "x"]
    if unreadable:
        raise ValueError(
            f"units cannot be called {unreadable}: they consist of letters, per cent signs and slashes"
        )
    return QuantityKind(
        f'an amount such as "2{plain}" (a plain number is {plain}), or "0.5x" of the source model',
        {"": Decimal(1), **sizes},
        written=tuple(sizes),
        relative=True,
    )


def _or_relative(kind: QuantityKind) -> QuantityKind:
    """Return a kind whose quantities may also be multiples of the source model's."""
    return replace(kind, expected=f'{kind.expected}, or "0.5x" of the source model', relative=True)


_ABSOLUTE_TIME = QuantityKind(
    'a time such as "30ms" (a plain number is milliseconds)',
    _units(ns="1e-6", us="1e-3", ms="1", s="1e3", min="6e4"),
    written=("ns", "us", "ms", "s"),
)
TIME = _or_relative(_ABSOLUTE_TIME)
_DURATION = QuantityKind(
    'a time such as "10min" (a plain number is seconds)',
    _units(s="1", m="60", min="60", h="3600"),
    written=("s", "min", "h"),
)
COUNT = QuantityKind(
    'a number such as "5G" or 5000000000, or "0.5x" of the source model',
    _units(K="1e3", k="1e3", M="1e6", G="1e9", T="1e12"),
    written=("", "K", "M", "G", "T"),
    relative=True,
    whole=True,
)
_SIZE = QuantityKind(
    'a number of bytes such as "0.5GB" (a plain number is bytes)',
    _units(
        B="1", KB="1e3", kB="1e3", MB="1e6", GB="1e9", TB="1e12", KiB="1024", MiB="1048576", GiB="1073741824"
    ),
    written=("B", "KB", "MB", "GB", "TB"),
    whole=True,
)
BYTES = _or_relative(_SIZE)
_ABSOLUTE_ENERGY = QuantityKind(
    'an energy such as "2mJ" (a plain number is millijoules)',
    _units(nJ="1e-6", uJ="1e-3", mJ="1", J="1e3"),
    written=("nJ", "uJ", "mJ", "J"),
)
ENERGY = _or_relative(_ABSOLUTE_ENERGY)
#: Plain numbers in an unknown unit.
PLAIN = QuantityKind("a number", _units(), written=("",))

_SHARE = QuantityKind(
    'a share above 0 and up to 1 such as "0.80" or "80%"', _units(**{"%": "1e-2"}), written=("%",)
)
_COMPUTE_POWER = QuantityKind(
    'a compute power such as "10GFLOP/s" (a plain number is GFLOP/s)',
    _units(**{"MFLOP/s": "1e-3", "GFLOP/s": "1", "TFLOP/s": "1e3"}),
    written=("MFLOP/s", "GFLOP/s", "TFLOP/s"),
)
_BANDWIDTH = QuantityKind(
    'a memory bandwidth such as "8.5GB/s" (a plain number is GB/s)',
    _units(**{"KB/s": "1e-6", "MB/s": "1e-3", "GB/s": "1", "TB/s": "1e3"}),
    written=("KB/s", "MB/s", "GB/s", "TB/s"),
)


def parse_time(raw: object) -> Quantity:
    """Parse a latency in milliseconds ("30ms", "0.2s", 30), or relative to the source ("0.5x").

    Raises:
        InvalidValue: A `ValueError`: wrong type, unknown unit, or not above 0 and finite. The same holds for
            the functions below.
    """
    return TIME.parse(raw)


def parse_duration(raw: object) -> float:
    """Parse a time in seconds ("10min", "1.5h", 90)."""
    return _DURATION.parse(raw).value


def parse_bytes(raw: object) -> Quantity:
    """Parse a memory or file size in bytes ("0.5GB", "512KiB", 4096), or relative to the source ("0.5x")."""
    return BYTES.parse(raw)


def parse_milliseconds(raw: object) -> float:
    """Parse a latency in milliseconds ("30ms", "0.2s", 30)."""
    return _ABSOLUTE_TIME.parse(raw).value


def parse_size(raw: object) -> float:
    """Parse a memory or file size in bytes ("0.5GB", "512KiB", 4096)."""
    return _SIZE.parse(raw).value


def parse_millijoules(raw: object) -> float:
    """Parse an energy in millijoules ("2mJ", "0.1J", 2)."""
    return _ABSOLUTE_ENERGY.parse(raw).value


def parse_figure(raw: object) -> float:
    """Parse a share, or a value above 0 of another metric ("0.80", "80%", 2.5)."""
    return _SHARE.parse(raw).value


def parse_compute_power(raw: object) -> float:
    """Parse a compute power in GFLOP/s ("10GFLOP/s", 10)."""
    return _COMPUTE_POWER.parse(raw).value


def parse_bandwidth(raw: object) -> float:
    """Parse a memory bandwidth in GB/s ("8.5GB/s", 8.5)."""
    return _BANDWIDTH.parse(raw).value


def format_time(value: Quantity | float, digits: int | None = None) -> str:
    """Format milliseconds in the largest unit that keeps the number at 1 or above.

    Args:
        value: A result of `parse_time`, or milliseconds.
        digits: Significant digits to keep, for tables; None keeps them all, so that parsing restores the same
            value. The other `format_*` functions do the same.
    """
    return TIME.format(value, digits)


def format_count(value: Quantity | float, digits: int | None = None) -> str:
    """Format multiply-adds or parameters: "12.5M"."""
    return COUNT.format(value, digits)


def format_bytes(value: Quantity | float, digits: int | None = None) -> str:
    """Format bytes: "314.7KB"."""
    return BYTES.format(value, digits)


def format_energy(value: float, digits: int | None = None) -> str:
    """Format millijoules: "2.5mJ"."""
    return ENERGY.format(value, digits)


def format_share(value: float, digits: int | None = None) -> str:
    """Format a share: "81.2%"."""
    return _SHARE.format(value, digits)


def format_compute_power(value: float, digits: int | None = None) -> str:
    """Format GFLOP/s: "1.5TFLOP/s"."""
    return _COMPUTE_POWER.format(value, digits)


def format_bandwidth(value: float, digits: int | None = None) -> str:
    """Format GB/s: "8.5GB/s"."""
    return _BANDWIDTH.format(value, digits)
