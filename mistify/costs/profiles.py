"""Profiles of device classes, which predict the latency of any network (paper 4.1)."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field
from typing_extensions import override

from mistify.costs.latency import LatencyModel
from mistify.costs.network import NetworkCost
from mistify.costs.operators import Operation, OperatorKind, elementwise
from mistify.costs.quantization import Quantization

#: How many networks a prediction outweighs.
_AS_PREDICTED: Final = 2


class HardwareProfile(ABC):
    """A device class whose latencies can be predicted; a value that travels in tasks and is kept with jobs.

    Attributes:
        name: lower case, such as "jetson-nano"; names the axis of its latency.
    """

    name: str

    @abstractmethod
    def latency_ms(self, network: NetworkCost) -> float:
        """Return the time of one inference at batch 1, in milliseconds."""

    def energy_mj(self, network: NetworkCost) -> float | None:
        """Return the energy of one inference at batch 1, in millijoules; None where it was not measured."""
        return None

    @abstractmethod
    def slower(self, factor: float) -> "HardwareProfile":
        """Return the profile of a device that takes `factor` times as long."""

    @abstractmethod
    def like_host(self, deviation: float) -> "HardwareProfile":
        """Return the profile if this machine takes `deviation` times as long as its own profile predicts."""


@dataclass(frozen=True)
class NominalProfile(HardwareProfile):
    """A device class by the figures of its data sheet.

    Attributes:
        compute_power: peak in GFLOP/s. The paper's latency `C_mem / mem_bandwidth + C_comp / comp_power`
            divides multiply-adds by it as they are: one multiply-add counts as one operation.
        memory_bandwidth: in GB/s (10^9 bytes per second).
    """

    name: str
    compute_power: float
    memory_bandwidth: float
    kind: Literal["nominal"] = "nominal"

    def __str__(self) -> str:
        return f"{self.compute_power:g} GFLOP/s and {self.memory_bandwidth:g} GB/s for {self.name}"

    def latency_ms(self, network: NetworkCost) -> float:
        """Return `C_mem / mem_bandwidth + C_comp / comp_power` (4.1), summed over the layers."""
        return network.bytes_moved / (self.memory_bandwidth * 1e6) + network.flops / (
            self.compute_power * 1e6
        )

    def slower(self, factor: float) -> "NominalProfile":
        """Divide both figures by the factor."""
        return replace(
            self,
            compute_power=self.compute_power / factor,
            memory_bandwidth=self.memory_bandwidth / factor,
        )

    def like_host(self, deviation: float) -> "NominalProfile":
        """Assume that a device deviates from its data sheet as this machine does from its own."""
        return self.slower(deviation)


@dataclass(frozen=True)
class MeasuredProfile(HardwareProfile):
    """A device at one precision, on which operators were measured.

    Attributes:
        models: by numbers of threads.
        watts: the device's power, by numbers of threads; empty where it does not measure it.
        integer: whether it is that of int8 networks, instead of float32 ones.
        factor: the measured time of networks, as a multiple of the models' prediction.
    """

    name: str
    models: Mapping[int, LatencyModel]
    integer: bool
    factor: float = 1.0
    watts: Mapping[int, float] = field(default_factory=dict)
    kind: Literal["measured"] = "measured"

    def __str__(self) -> str:
        return f"the device {self.name} as it was measured"

    def latency_ms(self, network: NetworkCost) -> float:
        """Return the time at the fastest number of threads that was measured."""
        return self._fastest(network)[0]

    @override
    def energy_mj(self, network: NetworkCost) -> float | None:
        """Return the power that the device draws with that number of threads, times the latency."""
        latency_ms, threads = self._fastest(network)
        return latency_ms * self.watts[threads] if threads in self.watts else None

    def slower(self, factor: float) -> "MeasuredProfile":
        """Multiply the factor of all networks."""
        return replace(self, factor=factor * self.factor)

    def like_host(self, deviation: float) -> "MeasuredProfile":
        """Return the profile itself: this machine says nothing of a device that was measured."""
        return self

    def _fastest(self, network: NetworkCost) -> tuple[float, int]:
        """Return the least latency in milliseconds, and the number of threads that reaches it."""
        operations = [
            *self._borders(OperatorKind.QUANTIZE, network.inputs, network),
            *network.operations,
            *self._borders(OperatorKind.DEQUANTIZE, network.outputs, network),
        ]
        return min(
            (self.factor * model.latency_ms(operations), threads) for threads, model in self.models.items()
        )

    def _borders(
        self, kind: OperatorKind, tensors: Iterable[int], network: NetworkCost
    ) -> Iterator[Operation]:
        """Add the conversions between the floats at a package's borders and the integers inside."""
        if self.integer:
            yield from (elementwise(kind, 1, network.elements[tensor]) for tensor in tensors)


def shrunk_factor(deviations: Collection[float]) -> float:
    """Return how many times longer than predicted networks take on a device, from measured ones.

    Their geometric mean, drawn towards 1 as if so many had taken just what was predicted.
    """
    return math.exp(sum(map(math.log, deviations)) / (len(deviations) + _AS_PREDICTED))


def device_profile_name(device: str, integer: bool) -> str:
    """Name the profile of a measured device: `my-board`, and `my-board@int8`."""
    return f"{device}@{Quantization.INT8.value}" if integer else device


def device_profile(
    device: str, models: Mapping[int, LatencyModel], integer: bool, watts: Mapping[int, float] | None = None
) -> MeasuredProfile:
    """Return a measured device's profile at one precision; `models` and `watts` by numbers of threads."""
    return MeasuredProfile(device_profile_name(device, integer), models, integer, watts=watts or {})


#: Every kind of profile, as tasks and plans hold them: by their names.
Profile: TypeAlias = Annotated[NominalProfile | MeasuredProfile, Field(discriminator="kind")]


def by_name(profiles: Iterable[Profile]) -> dict[str, Profile]:
    """Return profiles by name, as tasks and plans hold them."""
    return {profile.name: profile for profile in profiles}
