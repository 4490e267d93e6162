"""The predicted times of networks that do not run, with the helpers of this device.

The network that runs shows how fast link and helper are. That determines the time of each other network of
the package at each of its cuts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mistify.package.blocks import BlockVariant
from mistify_client.lending.chains import ChainTimes, HelperTimes


@dataclass(frozen=True)
class HelperFigures:
    """The speed of a helper and of its link, independent of networks.

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
        """Return the milliseconds with the best chain of helpers; None without helpers.

        Args:
            ratio: The time of an inference on this device, in relation to when it is idle.
        """
        helpers = list(helpers)
        times = [self._single_ms(ratio, helper, *cut) for helper in helpers for cut in self.cuts]
        if (chain_ms := self._chain_ms(ratio, helpers)) is not None:
            times.append(chain_ms)
        return min(times, default=None)

    def _single_ms(self, ratio: float, helper: HelperFigures, share: float, sent: int) -> float:
        """Return the milliseconds with one helper from a cut on."""
        exchange_ms = max(0.0, helper.fixed_ms + helper.byte_ms * (sent + self.outputs))
        return ratio * share * self.idle_ms + exchange_ms + helper.ratio * (1 - share) * self.idle_ms

    def _chain_ms(self, ratio: float, helpers: Sequence[HelperFigures]) -> float | None:
        """Return the milliseconds with the fastest chain, in which `fixed_ms` counts as at least 0."""
        shares = (*(share for share, _ in self.cuts), 1.0)
        segment_ms = [self.idle_ms * (after - before) for before, after in pairwise(shares)]
        known = {
            str(number): HelperTimes(
                max(0.0, each.fixed_ms), each.byte_ms, [each.ratio * one for one in segment_ms]
            )
            for number, each in enumerate(helpers)
        }
        sizes = (*(sent for _, sent in self.cuts), self.outputs)
        times = ChainTimes([ratio * each for each in segment_ms], known, sizes)
        chain = times.best_chain()
        return ratio * shares[0] * self.idle_ms + times.chain_ms(chain) if chain else None


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
