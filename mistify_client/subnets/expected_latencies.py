"""The latency of blocks that a device has not measured (CrowdHMTware III-D, equation 2).

As in the equation, a block's latency is the sum of its multiply-adds and its memory accesses, each times a
constant of the device. Activations, which mostly stay in a cache, and weights have constants of their own in
place of the hit rate, which few devices report. Multiply-adds are not weighted by arithmetic intensity, which
predicted worse.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mistify.package.blocks import BlockStore, BlockVariant
from mistify_client.subnets.block_latencies import LatencyTable

Floats = npt.NDArray[np.floating[Any]]

#: With fewer measured blocks, latencies are proportional to multiply-adds.
_FEWEST: Final = 6


def expected_latencies_ms(
    store: BlockStore, table: LatencyTable, measured: Sequence[BlockVariant]
) -> dict[BlockVariant, float]:
    """Return the expected milliseconds of every block of a store that has an estimate.

    The constants are at least 0 and minimize the relative errors for the measured blocks.

    Args:
        store: The blocks; positions give the sizes of their inputs and outputs.
        table: The latencies of the measured blocks.
        measured: At least one block with an estimate.
    """
    costs, latencies_ms = _costs(store, measured), np.array([table.of(block) for block in measured])
    if len(measured) < _FEWEST:
        constants = np.array([latencies_ms.sum() / costs[:, 0].sum(), 0.0, 0.0])
    else:
        constants = _non_negative(costs / latencies_ms[:, None])
    known = [block for block in store.variants if block.estimate is not None]
    return dict(zip(known, (_costs(store, known) @ constants).tolist(), strict=True))


def _costs(store: BlockStore, blocks: Sequence[BlockVariant]) -> Floats:
    """Return the multiply-adds of blocks, and the bytes of activations and weights [blocks, 3]."""
    return np.array([
        (
            max(1, block.estimate.flops if block.estimate else 0),
            store.bytes_at(block.start) + store.bytes_at(block.end),
            block.content.size,
        )
        for block in blocks
    ], float)  # fmt: skip


def _non_negative(relative: Floats) -> Floats:
    """Return the constants, at least 0, with which the sums of relative costs are closest to 1.

    The best constants are those of a least-squares fit to the costs whose constants are above 0, so all
    subsets of costs are tried.

    Args:
        relative: Costs divided by latencies [blocks, costs].
    """
    count = relative.shape[1]
    best, least = np.zeros(count), np.inf
    for size in range(1, count + 1):
        for chosen in map(list, combinations(range(count), size)):
            fitted, *_ = np.linalg.lstsq(relative[:, chosen], np.ones(len(relative)))
            error = float(np.sum((relative[:, chosen] @ fitted - 1) ** 2))
            if (fitted >= 0).all() and error < least:
                least = error
                best = np.zeros(count)
                best[chosen] = fitted
    return best
