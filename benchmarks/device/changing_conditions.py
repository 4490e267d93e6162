"""Traces of a device whose load, memory and battery change, with options like those of a package."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from mistify.costs.energy import Energy, EnergyOrigin
from mistify.package.option_kinds import OptionKind, option_id
from mistify_client.assembly.engine import Engine
from mistify_client.monitor.policies.scoring import USABLE_MEMORY
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.traces.lines import Line, Moment, Options, Run
from mistify_client.runtime.options import Option, OptionCosts, OptionScore

#: Latency of the largest option on an idle device, and the limit on latencies.
LARGEST_MS: Final = 16.0
LIMIT_MS: Final = 20.0

#: The mean duration of a load and of a state of the memory.
_LOAD_SECONDS: Final = 60.0
_MEMORY_SECONDS: Final = 120.0

#: Ratios of latencies to those of an idle device.
_LOADS: Final = (1.0, 1.5, 2.5, 4.0)

#: The limit on the memory of an option in bytes: plenty, and then a fifth and a tenth.
LESS_MEMORY: Final = (12e6, 6e6)
_MEMORIES: Final = (60e6, *LESS_MEMORY)

#: Standard deviation of the logarithm of measured ratios.
_NOISE: Final = 0.03

#: The charge at the beginning and at the end.
_CHARGES: Final = (1.0, 0.05)


def options_of_size(number: int) -> tuple[Option, ...]:
    """Return options from an eighth of the largest one's costs up to it, with diminishing accuracy.

    The error falls with the square root of the multiply-adds, from 32 to 18 %, as with branches of ResNet-8
    on CIFAR-10.

    Args:
        number: At least two.
    """
    shares = np.geomspace(1 / 8, 1, number)
    errors = 0.18 + 0.14 * (shares**-0.5 - 1) / (8**0.5 - 1)
    return tuple(
        Option(
            OptionKind.BRANCH,
            option_id(OptionKind.BRANCH, place),
            Engine(),
            OptionCosts(LARGEST_MS * float(share), memory_bytes=16e6 * float(share)),
            OptionScore(1 - float(error)),
        )
        for place, (share, error) in enumerate(zip(shares, errors, strict=True))
    )


def trace(offered: tuple[Option, ...], seconds: int, seed: int) -> Iterator[Line]:
    """Yield a trace with one moment a second."""
    rng = np.random.default_rng(seed)
    loads = _steps(rng, _LOADS, _LOAD_SECONDS, seconds)
    memories = _steps(rng, _MEMORIES, _MEMORY_SECONDS, seconds)
    charges = np.linspace(*_CHARGES, seconds)
    ratios = loads * np.exp(_NOISE * rng.standard_normal(seconds))
    energies = {option.id: Energy(2.0 * option.costs.latency_ms, EnergyOrigin.MEASURED) for option in offered}
    first = offered[-1].id
    yield Run(format=1, started="")
    yield Options(options=offered, option=first)
    for second in range(seconds):
        yield Moment(
            now=float(second),
            ratio=float(ratios[second]),
            reading=SensorReading(cpu_available=1 / float(loads[second]), battery=float(charges[second])),
            memory_bytes=float(memories[second]) / USABLE_MEMORY,
            energies=energies,
            option=first,
            fits=True,
        )


def _steps(
    rng: np.random.Generator, levels: tuple[float, ...], mean_seconds: float, seconds: int
) -> npt.NDArray[np.float64]:
    """Return a level for each second; each lasts for a random time."""
    values = np.empty(0)
    while len(values) < seconds:
        duration = 1 + int(rng.exponential(mean_seconds))
        values = np.append(values, np.full(duration, rng.choice(levels)))
    return values[:seconds]
