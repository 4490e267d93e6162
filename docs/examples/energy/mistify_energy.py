"""The energy of an inference, from the measured power of a device, or from figures for a 45 nm process.

The figures, in picojoules per operation and per 32 bits read, are from Mark Horowitz, "Computing's energy
problem (and what we can do about it)", ISSCC 2014. Real devices differ in process, caches and other
load, so ratios between networks and precisions are far more accurate than absolute amounts.
"""

from mistify.costs.axes import Axis, Condition
from mistify.costs.network import NetworkCost
from mistify.costs.quantization import Quantization
from mistify.parsing.quantities import measured_in

#: Energy of a multiplication and an addition, in picojoules.
FLOAT_PJ = 3.7 + 0.9
INTEGER_PJ = 0.2 + 0.03

#: Energy per byte, in picojoules: weights are read from DRAM, activations stay in a small SRAM.
DRAM_PJ = 640 / 4
SRAM_PJ = 5 / 4

_PJ_PER_MJ = 1e9


def energy_mj(network: NetworkCost, at: Condition) -> float:
    """Return the millijoules of one inference at batch 1.

    Without measurements, the estimate assumes that every weight is read once, and every activation is written
    once and read once.
    """
    measured = at.hardware.energy_mj(network)
    if measured is not None:
        return measured
    computes = FLOAT_PJ if at.precision in (Quantization.NONE, Quantization.FLOAT16) else INTEGER_PJ
    written = sum(network.elements[layer.output] for layer in network.layers if not layer.in_place)
    moved = DRAM_PJ * network.weight_bytes(at.precision)
    moved += 2 * SRAM_PJ * at.precision.storage.activation * written
    return (computes * network.flops + moved) / _PJ_PER_MJ


ENERGY = Axis(
    key="energy",
    quantity="energy_mj",
    label="energy (estimated)",
    kind=measured_in({"nJ": 1e-6, "uJ": 1e-3, "mJ": 1, "J": 1e3}),
    cost=energy_mj,
    by_precision=True,
    by_hardware=True,
)
