"""Measured latency: profiles corrected by a network's latency in LiteRT (paper 4.1)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import keras
import numpy as np

from executors.data import Dataset
from executors.structure.exporting import folded
from executors.timing import activity
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.axes import costs_of
from mistify.costs.budget import Budget, Costs, conditions_of, hardware_of, threads_of
from mistify.costs.catalogue import HOST, host_profile_name, is_host
from mistify.costs.network import NetworkCost
from mistify.costs.profiles import MeasuredProfile, Profile
from mistify.costs.quantization import Quantization
from mistify_server.worker.packaging.conversion.activations import calibration
from mistify_server.worker.packaging.conversion.converter import saved
from mistify_server.worker.packaging.conversion.representative import Examples
from mistify_server.worker.packaging.measurement.isolated import latencies_of
from mistify_server.worker.resource_errors import suppress_conversion_errors

Profiles: TypeAlias = tuple[Profile, ...]

#: Measures the latency of a network in LiteRT on this machine, in milliseconds; None if it cannot run.
LatencyMeter: TypeAlias = Callable[[keras.Model], float | None]

#: Share of a latency limit to which networks are cut. The package is measured again, and repeated
#: measurements differ by a few per cent.
_AIM = 0.95

#: Maximum factor by which a second reading may increase a cut over that by the first alone: readings are
#: noisy.
_MOST_STEEP = 2.0

#: Number of examples for converting integer networks; latency does not depend on them.
_EXAMPLES = 8


def latency_meter(
    quantizations: Sequence[QuantizationConfig], train: Dataset, threads: int = 1
) -> LatencyMeter:
    """Return a function that measures networks as they will be packaged, at the slowest precision.

    A precision at which LiteRT cannot run a network here is ignored.

    Args:
        quantizations: The precisions of the packages.
        train: Provides examples to convert networks with.
        threads: Number of threads that run the packages.
    """

    @activity("measuring")
    def measure(model: keras.Model) -> float | None:
        examples = few_examples(model, train, [each.precision for each in quantizations])
        with saved(model) as network:
            networks = [network.at(_without_training(each), examples) for each in quantizations]
        return slowest_ms(networks, threads)

    return measure


def slowest_ms(networks: Sequence[bytes], threads: int = 1) -> float | None:
    """Return the latency of the slowest network in milliseconds; None if none can run here."""
    measured = latencies_of(dict(enumerate(networks)), threads).values()
    return max((latency.median_ms for latency in measured), default=None)


@activity("measuring")
def latencies(
    model: keras.Model, precisions: Sequence[Quantization], train: Dataset, threads: int = 1
) -> dict[Quantization, float]:
    """Return a network's latencies in LiteRT here, in milliseconds, in float32 and other precisions.

    Precisions at which it cannot be converted or run here are omitted. Converter errors in float32 are
    raised.

    Args:
        precisions: Precisions to measure in addition to float32.
        train: Training data, the source of examples for the conversion.
        threads: Number of LiteRT threads.
    """
    with saved(model) as network:
        networks = {Quantization.NONE: network.at(QuantizationConfig())}
        for precision in precisions:
            with suppress_conversion_errors():
                examples = few_examples(model, train, [precision])
                networks[precision] = network.at(QuantizationConfig(precision=precision), examples)
    measured = latencies_of(networks, threads)
    return {precision: latency.median_ms for precision, latency in measured.items()}


def few_examples(model: keras.Model, train: Dataset, precisions: Iterable[Quantization]) -> Examples | None:
    """Return a few training examples by input for conversion; latency does not depend on them.

    Args:
        precisions: Precisions of the conversions; if none uses integers, the result is None.

    Raises:
        MistifyError: INVALID_MODEL, the network has non-finite activations for all of them.
    """
    if not any(precision.integer for precision in precisions):
        return None
    return calibration([folded(model)], train.subset(np.arange(min(_EXAMPLES, len(train))))).examples


def _without_training(quantization: QuantizationConfig) -> QuantizationConfig:
    """Return the quantization without training, which does not affect operators or latency."""
    return quantization.model_copy(update={"precision": quantization.precision.stored_as})


@dataclass(frozen=True)
class LatencyReading:
    """Measured and predicted latency of a network in LiteRT on this machine, in milliseconds.

    Attributes:
        predicted_ms: Prediction by the profile calibrated with the source.
        measured_ms: Latency measured in LiteRT.
        costs: Costs of the network according to the profiles at that time.
        by_operators: Whether the profile was measured per operator, with the same number of threads.
    """

    predicted_ms: float
    measured_ms: float
    costs: Costs
    by_operators: bool = False

    @classmethod
    def of(
        cls, cost: NetworkCost, measured_ms: float, profiles: Profiles, budget: Budget
    ) -> "LatencyReading":
        """Return the reading of a network at the precision and threads of the budget's latency limit."""
        host = _host(profiles, budget)
        # For more threads, the profile may be a scaled one for a single thread.
        by_operators = isinstance(host, MeasuredProfile) and host.threads == 1
        return cls(host.latency_ms(cost), measured_ms, costs_of(cost, profiles), by_operators)

    @property
    def deviation(self) -> float:
        """The ratio of measured to predicted latency."""
        return self.measured_ms / self.predicted_ms


def corrected(profiles: Profiles, deviation: float) -> Profiles:
    """Return the profiles for a machine that is slower than predicted by a factor of `deviation`."""
    return tuple(profile.slower(deviation) if is_host(profile.name) else profile for profile in profiles)


def deviation_at(budget: Budget, readings: Sequence[LatencyReading]) -> float:
    """Predict the deviation of a network that just meets the limits on latency.

    Without a reading, the result is 1. With one reading, or with a profile measured per operator, which
    already includes constant costs, it is the last reading's deviation. With two readings, a part of the
    latency may be constant, such as the start of operators, and matters more in a smaller network.
    """
    if not readings:
        return 1.0
    last = readings[-1]
    if len(readings) == 1 or last.by_operators:
        return last.deviation
    before = readings[-2]
    slope = (before.measured_ms - last.measured_ms) / (before.predicted_ms - last.predicted_ms or np.inf)
    slope = min(max(slope, 0.0), last.deviation)
    fixed_ms = last.measured_ms - slope * last.predicted_ms
    limits = (limit / last.costs[axis] for axis, limit in budget.items() if hardware_of(axis) == HOST.name)
    limit_ms = min(limits) * last.predicted_ms
    if last.measured_ms <= limit_ms:
        return last.deviation
    if limit_ms <= fixed_ms:
        return _MOST_STEEP * last.deviation
    return min(slope * limit_ms / (limit_ms - fixed_ms), _MOST_STEEP * last.deviation)


def limits_latency(budget: Budget) -> bool:
    """Check whether a budget limits latency on this machine, the only one with measurements."""
    return any(hardware_of(axis) == HOST.name for axis in budget)


def with_margin(budget: Budget) -> Budget:
    """Return the budget with latency limits that include a margin for noise in measurements and profiles."""
    return {axis: limit * (_AIM if hardware_of(axis) else 1.0) for axis, limit in budget.items()}


def _host(profiles: Profiles, budget: Budget) -> Profile:
    """Return this machine's profile for the threads of a budget.

    Its precision is that of the budget's latency limit, or else float32.
    """
    precisions = (conditions_of(axis).precision for axis in budget if hardware_of(axis) == HOST.name)
    name = host_profile_name(next(precisions, Quantization.NONE), threads_of(budget))
    return next((profile for profile in profiles if profile.name == name), HOST)
