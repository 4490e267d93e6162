"""The axes of costs (paper 4.1), built in or added by plug-ins.

A plug-in is an entry point of the group `mistify.costs`: an `Axis`, under its key.
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
    """The conditions of a cost.

    Attributes:
        precision: The precision of the package.
        hardware: The hardware, with its number of threads.
        integer_inputs: Whether inputs and outputs of an integer package are int8 instead of float32.
    """

    precision: Quantization = Quantization.NONE
    hardware: HardwareProfile = HOST
    integer_inputs: bool = False


@dataclass(frozen=True)
class Axis:
    """A quantity of networks that goals limit.

    Attributes:
        key: The key in `adaptation_goal`.
        quantity: The name in costs and budgets, including its base unit: `energy_mj`.
        label: A name for people.
        kind: The units in which amounts are read and written.
        cost: Computes the amount for a network. Removing units or layers must not increase it (decrease it,
            if higher is better); it has to be above 0.
        by_precision: Whether the amount depends on the precision, so that goals of different precisions are
            compared separately.
        by_hardware: Whether it depends on the hardware that a goal names.
        by_inputs: Whether it depends on the types of inputs and outputs of an integer package.
        higher_is_better: Whether goals limit it from below.
        measure: Measures the amount on a package, given the content of a `.tflite` file at its precision; on
            this machine with one thread, if it depends on hardware. The result replaces the predicted cost.
    """

    key: str
    quantity: str
    label: str
    kind: QuantityKind
    cost: Callable[[NetworkCost, Condition], float]
    by_precision: bool = False
    by_hardware: bool = False
    by_inputs: bool = False
    higher_is_better: bool = False
    measure: Callable[[bytes], float] | None = None

    @cached_property
    def format(self) -> AxisFormat:
        """The format of its amounts in reports."""
        return AxisFormat(
            INVERSE + self.quantity if self.higher_is_better else self.quantity, self.label, self.kind
        )

    def name(self, condition: Condition) -> str:
        """Return the axis of costs and budgets under a condition; omit conditions without influence."""
        return self.named(condition.hardware.name, condition.precision, condition.integer_inputs)

    def named(self, hardware: str, precision: Quantization, integer_inputs: bool = False) -> str:
        """Return the axis under conditions; omit those without influence.

        Args:
            hardware: Name of the hardware.
            precision: The precision of the package.
            integer_inputs: Whether inputs and outputs of an integer package are int8 as well.
        """
        return axis_name(
            self.format.quantity,
            hardware if self.by_hardware else None,
            precision if self.by_precision else Quantization.NONE,
            integer_inputs=integer_inputs and self.by_inputs,
        )

    def costs(
        self, network: NetworkCost, profiles: Iterable[HardwareProfile], only: Container[str] | None = None
    ) -> Iterator[tuple[str, float]]:
        """Yield the costs of a network under every condition, by axis.

        Args:
            only: The axes to compute; None for all.

        Raises:
            MistifyError: INTERNAL, a plug-in fails, or returns an invalid cost.
        """
        for condition in self._conditions(profiles):
            name = self.name(condition)
            if only is None or name in only:
                yield name, self._checked(partial(self.cost, network, condition))

    def measured(self, package: bytes, precision: Quantization, threads: int = 1) -> dict[str, float]:
        """Measure the costs of a package on this machine, by axis; empty for an axis that is not measured.

        Measurements use one thread, so axes that depend on hardware are not measured for other numbers of
        threads.

        Raises:
            MistifyError: INTERNAL, a plug-in fails, or returns an invalid cost.
        """
        if self.measure is None or (self.by_hardware and threads != 1):
            return {}
        return {self.name(Condition(precision)): self._checked(partial(self.measure, package))}

    def limit(self, asked: Quantity) -> Quantity:
        """Convert a limit of a config to an upper limit on costs, and vice versa.

        All comparisons of networks and goals assume that less is better: if higher is better, costs are the
        reciprocals of amounts. This preserves ratios, and so the distances between goals.
        """
        return Quantity(self.format.converted(asked.value), asked.relative)

    def _conditions(self, profiles: Iterable[HardwareProfile]) -> Iterator[Condition]:
        for precision in STORED if self.by_precision else (Quantization.NONE,):
            for profile in profiles if self.by_hardware else (HOST,):
                yield Condition(precision, profile)
            if self.by_inputs and precision.integer:
                yield Condition(precision, integer_inputs=True)

    def _checked(self, amount_of: Callable[[], float]) -> float:
        """Return the cost of an amount; check amounts from plug-ins."""
        if self.key in _BUILT_IN:
            return float(amount_of())
        try:
            amount = amount_of()
        except Exception as error:  # a plug-in may raise anything
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
            lambda network, at: network.memory_bytes(at.precision, integer_inputs=at.integer_inputs),
            by_precision=True,
            by_inputs=True,
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
    """The built-in axes, and those of usable plug-ins.

    Attributes:
        axes: By key.
        broken: Unusable plug-ins: name -> reason.
    """

    axes: Mapping[str, Axis]
    broken: Mapping[str, str]


@cache
def axis_registry() -> AxisRegistry:
    """Return the built-in axes and those of all installed plug-ins."""
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
    """Return all axes, built-in ones first."""
    return tuple(axis_registry().axes.values())


def axis_of(name: str) -> Axis:
    """Return the axis for a name in costs and budgets.

    Raises:
        MistifyError: INVALID_CONFIG, it belongs to a plug-in that is not installed here.
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
    """Return the name of the same axis at another precision, if it depends on the precision."""
    at = conditions_of(name)
    profile = host_profile_name(precision, at.threads) if at.hardware == HOST.name else at.profile
    return axis_name(
        quantity_of(name),
        profile,
        precision if axis_of(name).by_precision else Quantization.NONE,
        integer_inputs=at.integer_inputs and precision.integer,
    )


def depend_on_hardware(names: Iterable[str], profile: str) -> bool:
    """Check whether any axis depends on the hardware of a profile, at any precision.

    Args:
        names: The axes, as in costs and budgets.

    Raises:
        MistifyError: INVALID_CONFIG, one belongs to a plug-in that is not installed here.
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
        only: The axes to compute, to save time when many networks are compared; None for all.

    Raises:
        MistifyError: INTERNAL, a plug-in returns an invalid cost.
    """
    on = tuple(profiles)
    return {name: cost for axis in known_axes() for name, cost in axis.costs(network, on, only)}


def plugged_in_formats(costs: Iterable[str]) -> tuple[AxisFormat, ...]:
    """Return the formats of the axes in `costs` that come from plug-ins."""
    named = {quantity_of(name) for name in costs}
    return tuple(
        axis.format for axis in known_axes() if axis.format.quantity in named and axis.key not in _BUILT_IN
    )


def built_in_formats() -> tuple[AxisFormat, ...]:
    """Return the formats of the built-in axes, in display order."""
    return tuple(axis.format for axis in _BUILT_IN.values())


def _checked(axis: object, name: str, axes: Mapping[str, Axis]) -> Axis:
    """Return the axis of a plug-in; a `TypeError` or `ValueError` says why it cannot be used."""
    if not isinstance(axis, Axis):
        raise TypeError(f"is {axis!r}, not a mistify.costs.axes.Axis")
    if axis.key != name or not _KEY.fullmatch(axis.key) or axis.key in (*axes, "accuracy"):
        raise ValueError(f"its key is {axis.key!r}: expected the entry point's name, a word, and a new one")
    if not _KEY.fullmatch(axis.quantity) or axis.quantity in {known.quantity for known in axes.values()}:
        raise ValueError(f"its quantity is {axis.quantity!r}: expected a word, and a new one")
    return axis
