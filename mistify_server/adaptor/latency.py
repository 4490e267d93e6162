"""Latency by measurement: profiles corrected by what LiteRT takes for a network (paper 4.1)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import keras

from executors.data import Dataset
from executors.structure import analyse
from executors.timesheet import activity
from mistify.budget import Budget, hardware_of
from mistify.costs import NetworkCost
from mistify.hardware import HOST, HardwareProfile
from mistify.quantization import QuantizationConfig
from mistify_server.packaging.conversion import convert
from mistify_server.packaging.litert import measure_latency

Profiles: TypeAlias = tuple[HardwareProfile, ...]

#: What a network takes in LiteRT on this machine, in milliseconds.
Stopwatch: TypeAlias = Callable[[keras.Model], float]

#: What a network is cut to, as a share of a limit: the package is measured anew, and two measurements of one
#: network differ by some per cent.
_AIM = 0.95

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


def corrected(profiles: Profiles, model: keras.Model, measured_ms: float) -> Profiles:
    """The profiles, all by one factor, so that this machine's own predicts what was measured for a model.

    Other hardware is taken to deviate from its profile as this machine does from its own.
    """
    return _corrected(profiles, analyse(model).network(), measured_ms)


def calibrated(profiles: Profiles, source: keras.Model) -> Profiles:
    """The profiles with this machine's own corrected, to predict what LiteRT takes for the source."""
    return calibrated_by(profiles, analyse(source).network(), convert(source))


def calibrated_by(profiles: Profiles, cost: NetworkCost, network: bytes) -> Profiles:
    """The profiles with this machine's own corrected, to predict what a converted network takes."""
    hosts = tuple(profile for profile in profiles if profile.name == HOST.name)
    measured = _corrected(hosts, cost, measure_latency(network).median_ms)
    figures = {profile.name: profile for profile in (*profiles, *measured)}
    return tuple(figures.values())


def limits_latency(budget: Budget) -> bool:
    """Whether a budget has a limit on latency, on whatever hardware."""
    return any(hardware_of(axis) for axis in budget)


def aimed(budget: Budget) -> Budget:
    """The budget with limits on latency that leave room for the noise of measuring."""
    return {axis: limit * (_AIM if hardware_of(axis) else 1.0) for axis, limit in budget.items()}


def _corrected(profiles: Profiles, cost: NetworkCost, measured_ms: float) -> Profiles:
    host = next((profile for profile in profiles if profile.name == HOST.name), HOST)
    factor = cost.latency_ms(host) / measured_ms
    return tuple(_faster(profile, factor) for profile in profiles)


def _faster(profile: HardwareProfile, factor: float) -> HardwareProfile:
    return replace(
        profile,
        compute_power=profile.compute_power * factor,
        memory_bandwidth=profile.memory_bandwidth * factor,
    )
