"""The energy of an inference from multiply-adds and memory accesses (CrowdHMTware, equation 1)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mistify.costs.axes import Axis, Condition
from mistify.costs.layer import FLOAT_BYTES
from mistify.costs.network import NetworkCost
from mistify.costs.profiles import HardwareProfile
from mistify.costs.quantization import Quantization
from mistify.parsing import quantities

#: The energy of a multiply-add in picojoules, with floats and with integers, in a 45 nm process (Mark
#: Horowitz, Computing's energy problem, ISSCC 2014).
_FLOAT_PJ: Final = 3.7 + 0.9
_INTEGER_PJ: Final = 0.2 + 0.03

_PJ_PER_MJ: Final = 1e9

#: The least amount on the axis, that of one multiply-add: blocks of a network may have neither multiply-adds
#: nor weights, but amounts are compared by their ratios.
_LEAST_MJ: Final = _INTEGER_PJ / _PJ_PER_MJ


class EnergyOrigin(StrEnum):
    """The basis of an energy: how far its absolute amount can be trusted.

    Attributes:
        MEASURED: Watts of the device while the network ran, times the processor time that it took.
        FITTED: A model of networks fitted to measured watts of the device.
        PUBLISHED: Ratios from a paper; only comparisons between networks mean something.
    """

    MEASURED = "measured"
    FITTED = "fitted"
    PUBLISHED = "published ratios"


@dataclass(frozen=True)
class Energy:
    """The energy of one inference at batch 1, in millijoules, and its basis."""

    mj: float
    origin: EnergyOrigin


@dataclass(frozen=True)
class UnitEnergies:
    """The energy of memory accesses, as multiples of that of a multiply-add with floats.

    Attributes:
        cache: Reading 32 bits from a cache.
        dram: Reading 32 bits from DRAM.
        shared: Reading 32 bits through the shared memory of a GPU; 0 for processors without one.
    """

    cache: float
    dram: float
    shared: float = 0.0


#: The ratios of the paper for mobile processors.
CPU: Final = UnitEnergies(cache=6, dram=200)

#: The ratios of the paper for mobile GPUs.
GPU: Final = UnitEnergies(cache=6, dram=200, shared=2)


def energy(
    network: NetworkCost,
    precision: Quantization,
    hardware: HardwareProfile,
    hit_rate: float = 0.0,
    units: UnitEnergies = CPU,
) -> Energy:
    """Return the energy of a network, from the watts of the hardware if they are measured.

    Args:
        hit_rate: The share of weights read from the cache; by default, all of them come from DRAM.
        units: The ratios to use without measurements.
    """
    mj = hardware.energy_mj(network)
    if mj is not None:
        return Energy(mj, EnergyOrigin.FITTED)
    return published_energy(network.flops, network.weight_bytes(precision), precision, hit_rate, units)


def published_energy(
    multiply_adds: float,
    weight_bytes: float,
    precision: Quantization,
    hit_rate: float = 0.0,
    units: UnitEnergies = CPU,
) -> Energy:
    """Return the energy of a network by equation 1, with the ratios of the paper.

    Args:
        weight_bytes: Bytes of the weights at this precision.
        hit_rate: The share of weights read from the cache; by default, all of them come from DRAM.
        units: Energies of memory accesses, as multiples of that of a multiply-add in float32.
    """
    access = hit_rate * units.cache + (1 - hit_rate) * units.dram + units.shared
    is_float = precision in (Quantization.NONE, Quantization.FLOAT16)
    computing = multiply_adds * (_FLOAT_PJ if is_float else _INTEGER_PJ)
    words = weight_bytes / FLOAT_BYTES
    return Energy((computing + access * words * _FLOAT_PJ) / _PJ_PER_MJ, EnergyOrigin.PUBLISHED)


def origin_on(hardware: HardwareProfile) -> EnergyOrigin:
    """Return the basis of the energies of all networks on some hardware."""
    return EnergyOrigin.FITTED if hardware.has_measured_power else EnergyOrigin.PUBLISHED


def _amount(network: NetworkCost, at: Condition) -> float:
    return max(energy(network, at.precision, at.hardware).mj, _LEAST_MJ)


#: The axis of this energy, registered like that of a plug-in.
ENERGY: Final = Axis(
    key="energy",
    quantity="energy_mj",
    label="energy (estimated)",
    kind=quantities.ENERGY,
    cost=_amount,
    by_precision=True,
    by_hardware=True,
)
