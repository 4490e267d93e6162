"""The share of a data sheet's peak figures that operators reach in a runtime (paper 4.1).

Operators do not reach the peaks: a kernel fills its registers with output channels, so operators with few
channels compute at a small share of the peak; memory accesses go through caches; and starting takes time.
"""

from dataclasses import dataclass
from typing import Final

from mistify.costs.operators import Operation, OperatorKind


@dataclass(frozen=True)
class PeakShares:
    """The shares of the peaks that one kind of operator reaches.

    Attributes:
        compute: Multiply-adds as a share of peak operations, in the limit of many output channels. Data
            sheets count a multiply-add as two operations, so this is at most a half.
        half_at: Number of output channels at which half of `compute` is reached.
        memory: Share of the memory's bandwidth; above 1 if data stay in caches.
    """

    compute: float
    half_at: float
    memory: float

    def compute_with(self, channels: int) -> float:
        """Return the share of the peak at a number of output channels."""
        return self.compute * channels / (channels + self.half_at)


@dataclass(frozen=True)
class Efficiency:
    """The shares of the peaks that operators reach, and fixed overheads.

    Attributes:
        inference_us: Microseconds for each inference.
        operator_us: Microseconds for each operator.
        product: Convolutions and matrix products.
        depthwise: Depthwise convolutions.
        memory: Share of the bandwidth for all other operators, as in `PeakShares`.
    """

    inference_us: float
    operator_us: float
    product: PeakShares
    depthwise: PeakShares
    memory: float

    def microseconds(self, operation: Operation, compute_power: float, memory_bandwidth: float) -> float:
        """Return the time of an operator, `C_mem / mem_bandwidth + C_comp / comp_power`, at effective rates.

        Args:
            operation: A float32 operator.
            compute_power: Peak in GFLOP/s.
            memory_bandwidth: GB/s.
        """
        started = self.operator_us * operation.times
        if not operation.multiply_adds:
            return started + operation.bytes_moved / (memory_bandwidth * self.memory * 1e3)
        reached = self.depthwise if operation.kind is OperatorKind.DEPTHWISE else self.product
        return (
            started
            + operation.bytes_moved / (memory_bandwidth * reached.memory * 1e3)
            + operation.multiply_adds / (compute_power * reached.compute_with(operation.c_out) * 1e3)
        )


#: For LiteRT with one thread, fitted to an AMD EPYC whose core has 260 GFLOP/s and 41 GB/s, on 2026-11-24
#: (benchmarks/latency/data_sheets.py). This one measured device stands for all: only a measurement shows how
#: another device deviates from its data sheet.
MEASURED: Final = Efficiency(
    inference_us=0.45,
    operator_us=0.045,
    product=PeakShares(compute=0.5, half_at=16.0, memory=3.1),
    depthwise=PeakShares(compute=0.155, half_at=22.0, memory=2.4),
    memory=2.0,
)
