"""The predicted times of networks that do not run, with the helpers of this device.

The network that runs shows how fast link and helper are. That determines the time of each other network of
the package at each of its cuts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mistify.package.blocks import BlockVariant


@dataclass(frozen=True)
class HelperFigures:
    """What a helper takes.

    Attributes:
        fixed_ms: Milliseconds of each inference that depend on no network: the round trip, what the helper
            does beside its blocks, and what this device waits after an answer.
        byte_ms: Milliseconds for each byte sent or received.
        ratio: Its time for blocks, in relation to that of this device when it is idle.
    """

    fixed_ms: float
    byte_ms: float
    ratio: float


@dataclass(frozen=True)
class NetworkCuts:
    """A network, and the cuts at which a helper can take it over.

    Attributes:
        idle_ms: Milliseconds of the network on this device when it is idle.
        cuts: For each cut, the share of the time before it, and the bytes of its tensors.
        outputs: Bytes of the outputs.
    """

    idle_ms: float
    cuts: tuple[tuple[float, int], ...]
    outputs: int

    def helped_ms(self, ratio: float, helpers: Iterable[HelperFigures]) -> float | None:
        """Return the milliseconds with the best helper at the best cut; None without helpers.

        Args:
            ratio: The time of an inference on this device, in relation to when it is idle.
        """
        times = [
            ratio * share * self.idle_ms
            + max(0.0, helper.fixed_ms + helper.byte_ms * (sent + self.outputs))
            + helper.ratio * (1 - share) * self.idle_ms
            for helper in helpers
            for share, sent in self.cuts
        ]
        return min(times, default=None)


def shares_before(blocks: Sequence[BlockVariant], starts: Sequence[int]) -> tuple[float, ...]:
    """Return the share of a network's work before each of its segments.

    The work of a block is its multiply-adds; if they are unknown for some, the size of its file.

    Args:
        blocks: The blocks of the network.
        starts: Indices of the blocks with which its segments begin.
    """
    estimates = [block.estimate for block in blocks]
    work = [
        float(block.content.size) if None in estimates or estimate is None else float(estimate.flops)
        for block, estimate in zip(blocks, estimates, strict=True)
    ]
    total = sum(work) or 1.0
    return tuple(sum(work[:start]) / total for start in starts)
