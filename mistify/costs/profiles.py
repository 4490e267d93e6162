"""Profiles of device classes, which predict the latency of any network (paper 4.1)."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from math import exp, inf, log
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

from pydantic import Field
from typing_extensions import override

from mistify.costs.budget import at_threads
from mistify.costs.efficiency import Efficiency
from mistify.costs.latency import LatencyModel
from mistify.costs.network import NetworkCost
from mistify.costs.operators import Operation, OperatorKind, elementwise
from mistify.costs.quantization import PRECISIONS, Quantization

#: Weight of the prediction, in measured networks.
_PRIOR_WEIGHT: Final = 2

#: Minimum number of weights of a kernel that `dynamic` computes with integers.
_LEAST_KERNEL: Final = Quantization.DYNAMIC.storage.least_kernel


def _is_zero(figure: float) -> bool:
    """Check whether a figure can be omitted when serialised: older stores did not have it."""
    return figure == 0


def _is_all_precisions(precisions: tuple[Quantization, ...]) -> bool:
    """Check whether precisions can be omitted when serialised, by the same rule."""
    return precisions == PRECISIONS


class HardwareProfile(ABC):
    """A device class whose latencies can be predicted; a value that is part of tasks and stored with jobs.

    Attributes:
        name: Lower case, such as "jetson-nano" or "jetson-nano@4-threads"; part of the name of its latency
            axis.
        threads: Number of threads that run a network.
    """

    name: str
    threads: int

    @property
    @abstractmethod
    def evidence(self) -> str:
        """The basis of its predictions, for people."""

    @abstractmethod
    def latency_ms(self, network: NetworkCost) -> float:
        """Return the time of one inference at batch 1, in milliseconds."""

    @property
    def has_measured_power(self) -> bool:
        """Whether the device has measured its power, so that energies are known."""
        return False

    def energy_mj(self, network: NetworkCost) -> float | None:
        """Return the millijoules of one inference at batch 1; None unless the device measured its power."""
        return None

    @abstractmethod
    def slower(self, factor: float) -> "HardwareProfile":
        """Return the profile of a device that is slower by a factor."""


@dataclass(frozen=True)
class NominalProfile(HardwareProfile):
    """A device class described by the figures of its data sheet.

    Attributes:
        compute_power: Peak in GFLOP/s. The paper's latency `C_mem / mem_bandwidth + C_comp / comp_power`
            uses multiply-adds without conversion: one multiply-add counts as one operation.
        memory_bandwidth: GB/s (10^9 bytes per second).
        threads: Number of threads that run a network; the figures are the same for any number.
        efficiency: The share of the figures that is reached; None for all of them, as in the paper.
        factor: Correction factor on the predicted time of networks.
        inference_us: Microseconds to start an accelerator, for each inference.
        operator_us: Microseconds for each operator that is sent to the accelerator separately.
        precisions: The package precisions that the device can run.
    """

    name: str
    compute_power: float
    memory_bandwidth: float
    threads: int = 1
    efficiency: Efficiency | None = None
    factor: float = 1.0
    inference_us: Annotated[float, Field(exclude_if=_is_zero)] = 0.0
    operator_us: Annotated[float, Field(exclude_if=_is_zero)] = 0.0
    precisions: Annotated[tuple[Quantization, ...], Field(exclude_if=_is_all_precisions)] = PRECISIONS
    kind: Literal["nominal"] = "nominal"

    @property
    @override
    def evidence(self) -> str:
        """Its data sheet; for an accelerator, extrapolated."""
        if not self.inference_us and not self.operator_us:
            return "its data sheet"
        return (
            "its data sheet, extrapolated from the share of peak that a processor reaches and from the "
            "start-up times of accelerators"
        )

    def __str__(self) -> str:
        return f"{self.compute_power:g} GFLOP/s and {self.memory_bandwidth:g} GB/s for {self.name}"

    def latency_ms(self, network: NetworkCost) -> float:
        """Return `C_mem / mem_bandwidth + C_comp / comp_power` (4.1), summed over the layers.

        If the efficiency is known, the sum is over the operators, each at its effective rates.
        """
        power, bandwidth = self.compute_power, self.memory_bandwidth
        if self.efficiency is None:
            return self.factor * (network.bytes_moved / (bandwidth * 1e6) + network.flops / (power * 1e6))
        microseconds = (
            self.inference_us
            + self.efficiency.inference_us
            + sum(
                self.operator_us * operation.times + self.efficiency.microseconds(operation, power, bandwidth)
                for operation in network.operations
            )
        )
        return self.factor * microseconds / 1e3

    def with_threads(self, threads: int) -> "NominalProfile":
        """Return the profile of the same hardware with another number of threads."""
        if threads == self.threads:
            return self
        return replace(self, name=at_threads(self.name.partition("@")[0], threads), threads=threads)

    def slower(self, factor: float) -> "NominalProfile":
        """Multiply the factor for all networks."""
        return replace(self, factor=factor * self.factor)


class MeasuredNetwork(NamedTuple):
    """The costs of a network, and its measured latency in milliseconds."""

    cost: NetworkCost
    measured_ms: float


@dataclass(frozen=True)
class MeasuredProfile(HardwareProfile):
    """A device at one precision and one number of threads, with measured operators.

    Attributes:
        model: Predicts the time of operators.
        integer: Whether `model` is for int8 networks rather than float32 ones.
        threads: Number of threads that run a network.
        factor: Correction factor on the predicted time of networks, from measurements.
        fixed_ms: Milliseconds added to each network.
        watts: Watts while networks run; None if the device does not measure its power.
        kernels: Predicts operators with large kernels at a precision that computes only these with integers
            (`dynamic`); None if all operators use the same arithmetic.
    """

    name: str
    model: LatencyModel
    integer: bool
    threads: int = 1
    factor: float = 1.0
    fixed_ms: Annotated[float, Field(exclude_if=_is_zero)] = 0.0
    watts: float | None = None
    kernels: LatencyModel | None = None
    kind: Literal["measured"] = "measured"

    @property
    @override
    def evidence(self) -> str:
        """Its own measurements."""
        return "measurements of its operators"

    def __str__(self) -> str:
        return f"the measured device {self.name}"

    def latency_ms(self, network: NetworkCost) -> float:
        """Return the time of all operators, including int8 conversions of inputs and outputs."""
        operations = [
            *self._borders(OperatorKind.QUANTIZE, network.inputs, network),
            *network.operations,
            *self._borders(OperatorKind.DEQUANTIZE, network.outputs, network),
        ]
        predicted_ms = self.model.latency_ms(operations) - self._saved_ms(operations)
        return self.fixed_ms + self.factor * predicted_ms

    @property
    @override
    def has_measured_power(self) -> bool:
        """Whether the watts are known."""
        return self.watts is not None

    @override
    def energy_mj(self, network: NetworkCost) -> float | None:
        """Return the device's power times the latency."""
        return None if self.watts is None else self.latency_ms(network) * self.watts

    def slower(self, factor: float) -> "MeasuredProfile":
        """Multiply the time of all networks."""
        return replace(self, factor=factor * self.factor, fixed_ms=factor * self.fixed_ms)

    def fitted(self, large: MeasuredNetwork, small: MeasuredNetwork) -> "MeasuredProfile":
        """Return the profile on the line through two measured networks.

        If the small network took at least as long as the large one, all networks take the same time. If the
        line would give some networks a negative time, or the profile predicts the same for both, only the
        large one counts.
        """
        plain = replace(self, factor=1.0, fixed_ms=0.0)
        predicted_ms = plain.latency_ms(large.cost)
        less_ms = predicted_ms - plain.latency_ms(small.cost)
        factor = max(large.measured_ms - small.measured_ms, 0.0) / less_ms if less_ms > 0 else inf
        fixed_ms = large.measured_ms - factor * predicted_ms
        if fixed_ms < 0:
            return replace(plain, factor=large.measured_ms / predicted_ms)
        return replace(plain, factor=factor, fixed_ms=fixed_ms)

    def _saved_ms(self, operations: Iterable[Operation]) -> float:
        """Return the time saved by computing large kernels with integers, in milliseconds."""
        if self.kernels is None:
            return 0.0
        large = (operation for operation in operations if operation.weights >= _LEAST_KERNEL)
        return sum(self.model.microseconds(each) - self.kernels.microseconds(each) for each in large) / 1e3

    def _borders(
        self, kind: OperatorKind, tensors: Iterable[int], network: NetworkCost
    ) -> Iterator[Operation]:
        """Yield the conversions between float inputs or outputs of a package and the integers inside."""
        if self.integer:
            yield from (elementwise(kind, 1, network.elements[tensor]) for tensor in tensors)


def shrunk_factor(deviations: Collection[float]) -> float:
    """Return the correction factor of predictions on a device from the deviations of measured networks.

    It is their geometric mean, shrunk towards 1 as if a few more networks had matched the prediction exactly.
    """
    return exp(sum(map(log, deviations)) / (len(deviations) + _PRIOR_WEIGHT))


def device_profile_name(device: str, integer: bool, threads: int = 1) -> str:
    """Return the profile name of a measured device: `my-board` or `my-board@4-threads@int8`."""
    named = at_threads(device, threads)
    return f"{named}@{Quantization.INT8.value}" if integer else named


def device_profile(
    device: str, model: LatencyModel, integer: bool, threads: int = 1, watts: float | None = None
) -> MeasuredProfile:
    """Return the profile of a measured device at one precision and number of threads."""
    name = device_profile_name(device, integer, threads)
    return MeasuredProfile(name, model, integer, threads, watts=watts)


#: Any kind of profile, for serialisation in tasks and plans.
Profile: TypeAlias = Annotated[NominalProfile | MeasuredProfile, Field(discriminator="kind")]


def by_name(profiles: Iterable[Profile]) -> dict[str, Profile]:
    """Return profiles by name, as stored in tasks and plans."""
    return {profile.name: profile for profile in profiles}
