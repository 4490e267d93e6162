"""Latency by measurement: profiles corrected by what LiteRT takes for a network (paper 4.1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import keras
import numpy as np

from executors.data import Dataset
from executors.structure import analyse
from executors.timing import activity
from mistify.config.quantization import QuantizationConfig
from mistify.costs.axes import costs_of
from mistify.costs.budget import Budget, Costs, hardware_of
from mistify.costs.catalogue import HOST
from mistify.costs.network import NetworkCost
from mistify.costs.profiles import Profile
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.measurement.latency import measure_latency

Profiles: TypeAlias = tuple[Profile, ...]

#: What a network takes in LiteRT on this machine, in milliseconds.
Stopwatch: TypeAlias = Callable[[keras.Model], float]

#: What a network is cut to, as a share of a limit: the package is measured anew, and two measurements of one
#: network differ by some per cent.
_AIM = 0.95

#: At a second reading, how many times as far as by the first alone a network is cut at the most: readings are
#: noisy.
_MOST_STEEP = 2.0

#: An integer network has to be converted with some data; how long it takes does not depend on them.
_EXAMPLES = 8


def stopwatch(quantizations: Sequence[QuantizationConfig], train: Dataset) -> Stopwatch:
    """What measures networks as they will be packaged; at several precisions the slowest counts."""

    @activity("measuring")
    def measure(model: keras.Model) -> float:
        examples = {tensor.name: train.inputs[tensor.name][:_EXAMPLES] for tensor in model.inputs}
        networks = (convert(model, _trained_or_not(asked), examples) for asked in quantizations)
        return max(measure_latency(network).median_ms for network in networks)

    return measure


def _trained_or_not(asked: QuantizationConfig) -> QuantizationConfig:
    """Quantization-aware training changes no operator: the network without it takes as long."""
    return asked.model_copy(update={"precision": asked.precision.stored_as})


@dataclass(frozen=True)
class LatencyReading:
    """What LiteRT took for a network, beside what this machine's profile predicts, in milliseconds.

    Attributes:
        predicted_ms: By the profile as it was calibrated with the source.
        measured_ms: In LiteRT on this machine.
        costs: The network's costs by the profiles as they were.
    """

    predicted_ms: float
    measured_ms: float
    costs: Costs

    @classmethod
    def of(cls, model: keras.Model, measured_ms: float, profiles: Profiles) -> "LatencyReading":
        """Of a network that was measured."""
        cost = analyse(model).network()
        return cls(_host(profiles).latency_ms(cost), measured_ms, costs_of(cost, profiles))

    @property
    def deviation(self) -> float:
        """How many times longer the network takes than is predicted."""
        return self.measured_ms / self.predicted_ms


def corrected(profiles: Profiles, deviation: float) -> Profiles:
    """The profiles, given that this machine takes so many times as long as its own says."""
    return tuple(profile.like_host(deviation) for profile in profiles)


def deviation_at(budget: Budget, readings: Sequence[LatencyReading]) -> float:
    """How many times longer than predicted a network takes that just meets the limits on latency.

    From one reading: as many as there. From two: a part of the time may be the same for both, such as that of
    starting operators, and counts for more in a smaller network.
    """
    last = readings[-1]
    if len(readings) == 1:
        return last.deviation
    before = readings[-2]
    slope = (before.measured_ms - last.measured_ms) / (before.predicted_ms - last.predicted_ms or np.inf)
    slope = min(max(slope, 0.0), last.deviation)
    same_for_all = last.measured_ms - slope * last.predicted_ms
    limits = (limit / last.costs[axis] for axis, limit in budget.items() if hardware_of(axis))
    limit_ms = min(limits) * last.predicted_ms
    if last.measured_ms <= limit_ms:
        return last.deviation
    if limit_ms <= same_for_all:
        return _MOST_STEEP * last.deviation
    return min(slope * limit_ms / (limit_ms - same_for_all), _MOST_STEEP * last.deviation)


def calibrated(profiles: Profiles, source: keras.Model) -> Profiles:
    """The profiles with this machine's own corrected, to predict what LiteRT takes for the source."""
    return calibrated_by(profiles, analyse(source).network(), convert(source))


def calibrated_by(profiles: Profiles, cost: NetworkCost, network: bytes) -> Profiles:
    """The profiles with this machine's own corrected, to predict what a converted network takes."""
    factor = measure_latency(network).median_ms / _host(profiles).latency_ms(cost)
    return tuple(profile.slower(factor) if profile.name == HOST.name else profile for profile in profiles)


def limits_latency(budget: Budget) -> bool:
    """Whether a budget has a limit on latency, on whatever hardware."""
    return any(hardware_of(axis) for axis in budget)


def aimed(budget: Budget) -> Budget:
    """The budget with limits on latency that leave room for the noise of measuring."""
    return {axis: limit * (_AIM if hardware_of(axis) else 1.0) for axis, limit in budget.items()}


def _host(profiles: Profiles) -> Profile:
    return next((profile for profile in profiles if profile.name == HOST.name), HOST)
