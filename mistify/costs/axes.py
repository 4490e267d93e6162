"""The axes of costs (paper 4.1), built in or added by plug-ins, each described once.

A plug-in is an entry point of the group `mistify.costs`: an `Axis`, under the name that is its key.
"""

import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from numbers import Real
from typing import Final

from mistify.costs.budget import (
    FLOPS,
    LATENCY,
    MEMORY,
    PARAMS,
    SIZE,
    Costs,
    axis_name,
    conditions_of,
    quantity_of,
)
from mistify.costs.catalogue import HOST, host_profile_name
from mistify.costs.formats import INVERSE, AxisFormat
from mistify.costs.network import NetworkCost
from mistify.costs.profiles import HardwareProfile
from mistify.costs.quantization import STORED, Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.quantities import BYTES, COUNT, TIME, Quantity, QuantityKind
from mistify.plugins import UnusablePlugInError, load_plug_in, plug_ins

__all__ = ["Axis", "Condition", "costs_of"]

ENTRY_POINTS: Final = "mistify.costs"

_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True)
class Condition:
    """A condition of a cost: the precision of the package, and the hardware that it runs on.

    The hardware has the number of threads.
    """

    precision: Quantization = Quantization.NONE
    hardware: HardwareProfile = HOST


@dataclass(frozen=True)
class Axis:
    """A quantity of networks that goals limit.

    Attributes:
        key: The key in `adaptation_goal`.
        quantity: The name in costs and budgets, with its plain unit: `energy_mj`.
        label: A name for people.
        kind: The units in which amounts are read and written.
        cost: The amount of a network. A network with fewer units, or fewer layers, must have no more of it
            (where higher is better, no less); it has to be above 0.
        by_precision: Whether the amount depends on the precision, so that goals of different precisions are
            compared apart.
        by_hardware: Whether it depends on the hardware named by a goal.
        higher_is_better: Whether goals limit it from below.
        measure: The amount as measured on a package, the content of a `.tflite` at its precision; on this
            machine with one thread, if it depends on hardware. It then replaces the cost, which predicts it.
    """

    key: str
    quantity: str
    label: str
    kind: QuantityKind
    cost: Callable[[NetworkCost, Condition], float]
    by_precision: bool = False
    by_hardware: bool = False
    higher_is_better: bool = False
    measure: Callable[[bytes], float] | None = None

    @cached_property
    def format(self) -> AxisFormat:
        """How reports show its amounts."""
        return AxisFormat(
            INVERSE + self.quantity if self.higher_is_better else self.quantity, self.label, self.kind
        )

    def name(self, condition: Condition) -> str:
        """Return the axis of costs and budgets under a condition, as far as the amount depends on it."""
        return self.named(condition.hardware.name, condition.precision)

    def named(self, hardware: str, precision: Quantization) -> str:
        """Return the axis on hardware of a name and at a precision, as far as the amount depends on them."""
        at = precision if self.by_precision else Quantization.NONE
        return axis_name(self.format.quantity, hardware if self.by_hardware else None, at)

    def costs(
        self, network: NetworkCost, profiles: Iterable[HardwareProfile], only: Container[str] | None = None
    ) -> Iterator[tuple[str, float]]:
        """Yield the costs of a network under every condition, by axis.

        Args:
            only: The axes to compute; None for all.

        Raises:
            MistifyError: INTERNAL, a plug-in returns something that is no cost.
        """
        for precision in STORED if self.by_precision else (Quantization.NONE,):
            for profile in profiles if self.by_hardware else (HOST,):
                condition = Condition(precision, profile)
                name = self.name(condition)
                if only is None or name in only:
                    yield name, self._checked(partial(self.cost, network, condition))

    def measured(self, package: bytes, precision: Quantization, threads: int = 1) -> dict[str, float]:
        """Measure the costs of a package on this machine, by axis; empty for an axis that is not measured.

        An axis that depends on hardware is not measured for several threads either: `measure` does not get
        their number.

        Raises:
            MistifyError: As for `costs`.
        """
        if self.measure is None or (self.by_hardware and threads != 1):
            return {}
        return {self.name(Condition(precision)): self._checked(partial(self.measure, package))}

    def limit(self, asked: Quantity) -> Quantity:
        """Convert a limit of a config to the upper limit of costs, and the other way round.

        All comparisons of networks and goals prefer less: where higher is better, costs are reciprocals of
        amounts. Their ratios, and so the distances between goals, stay the same.
        """
        return Quantity(self.format.converted(asked.value), asked.relative)

    def _checked(self, amount_of: Callable[[], float]) -> float:
        """Return the cost of an amount; a plug-in's is checked."""
        if self.key in _BUILT_IN:
            return float(amount_of())
        try:
            amount = amount_of()
        except Exception as error:  # what a plug-in raises is its own business
            raise MistifyError(
                ErrorCode.INTERNAL, f"the metric {self.key} cannot measure a network: {error!r}"
            ) from error
        if isinstance(amount, bool) or not isinstance(amount, Real) or not 0 < float(amount) < math.inf:
            raise MistifyError(
                ErrorCode.INTERNAL,
                f"the metric {self.key} is {amount!r}; expected a number above 0",
            )
        return self.format.converted(float(amount))


_BUILT_IN: Final[Mapping[str, Axis]] = {
    axis.key: axis
    for axis in (
        Axis("FLOP", FLOPS, "multiply-adds", COUNT, lambda network, _: network.flops),
        Axis("num_of_params", PARAMS, "parameters", COUNT, lambda network, _: network.params),
        Axis(
            "memory",
            MEMORY,
            "memory",
            BYTES,
            lambda network, at: network.memory_bytes(at.precision),
            by_precision=True,
        ),
        Axis(
            "size",
            SIZE,
            "size",
            BYTES,
            lambda network, at: network.size_bytes(at.precision),
            by_precision=True,
            measure=len,
        ),
        Axis(
            "latency",
            LATENCY,
            "latency",
            TIME,
            lambda network, at: at.hardware.latency_ms(network),
            by_hardware=True,
        ),
    )
}


@dataclass(frozen=True)
class AxisRegistry:
    """The built-in axes, and those of plug-ins that could be loaded.

    Attributes:
        axes: By key.
        broken: Plug-ins that cannot be used: name -> reason.
    """

    axes: Mapping[str, Axis]
    broken: Mapping[str, str]


@cache
def axis_registry() -> AxisRegistry:
    """Return the axes of Mistify and of all plug-ins that are installed."""
    axes, broken = dict(_BUILT_IN), {}
    for name, point in plug_ins(ENTRY_POINTS).items():
        try:
            axes[name] = _checked(load_plug_in(point), name, axes)
        except UnusablePlugInError as error:
            broken[name] = str(error)
        except (TypeError, ValueError) as error:
            broken[name] = f"{point.value}: {error}"
    return AxisRegistry(axes, broken)


def known_axes() -> tuple[Axis, ...]:
    """Return all axes, those of Mistify first."""
    return tuple(axis_registry().axes.values())


def axis_of(name: str) -> Axis:
    """Return the axis that a name in costs and budgets belongs to.

    Raises:
        MistifyError: INVALID_CONFIG, it is that of a plug-in which is not installed here.
    """
    quantity = quantity_of(name)
    match = next((axis for axis in known_axes() if axis.format.quantity == quantity), None)
    if match is None:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f"the metric {quantity} is not known here; install the plug-in that defines it",
        )
    return match


def at_precision(name: str, precision: Quantization) -> str:
    """Return the name of the same axis at another precision, where it depends on that."""
    at = conditions_of(name)
    profile = host_profile_name(precision, at.threads) if at.hardware == HOST.name else at.profile
    return axis_name(
        quantity_of(name), profile, precision if axis_of(name).by_precision else Quantization.NONE
    )


def depend_on_hardware(names: Iterable[str], profile: str) -> bool:
    """Check whether some axes depend on the hardware of a profile, at any precision.

    Args:
        names: The axes, as in costs and budgets.

    Raises:
        MistifyError: INVALID_CONFIG, one is that of a plug-in which is not installed here.
    """
    axes = ((name, axis_of(name)) for name in names)
    return any(
        axis.by_hardware and name == axis.named(profile, conditions_of(name).precision) for name, axis in axes
    )


def costs_of(
    network: NetworkCost, profiles: Iterable[HardwareProfile] = (), only: Container[str] | None = None
) -> Costs:
    """Return a network's cost on every axis, under every condition.

    Args:
        profiles: The profiles for axes that depend on hardware.
        only: The axes to compute, as where thousands of networks are compared; None for all.

    Raises:
        MistifyError: INTERNAL, a plug-in returns something that is no cost.
    """
    on = tuple(profiles)
    return {name: cost for axis in known_axes() for name, cost in axis.costs(network, on, only)}


def plugged_in_formats(costs: Iterable[str]) -> tuple[AxisFormat, ...]:
    """Return the formats of those axes of `costs` that plug-ins have added."""
    named = {quantity_of(name) for name in costs}
    return tuple(
        axis.format for axis in known_axes() if axis.format.quantity in named and axis.key not in _BUILT_IN
    )


def built_in_formats() -> tuple[AxisFormat, ...]:
    """Return the formats of Mistify's own axes, in the order in which they are shown."""
    return tuple(axis.format for axis in _BUILT_IN.values())


def _checked(axis: object, name: str, axes: Mapping[str, Axis]) -> Axis:
    """Return the axis that a plug-in adds; a `TypeError` or `ValueError` says why it cannot be used."""
    if not isinstance(axis, Axis):
        raise TypeError(f"is {axis!r}, not a mistify.costs.axes.Axis")
    if axis.key != name or not _KEY.fullmatch(axis.key) or axis.key in (*axes, "accuracy"):
        raise ValueError(f"its key is {axis.key!r}: expected the entry point's name, a word, and a new one")
    if not _KEY.fullmatch(axis.quantity) or axis.quantity in {known.quantity for known in axes.values()}:
        raise ValueError(f"its quantity is {axis.quantity!r}: expected a word, and a new one")
    return axis
