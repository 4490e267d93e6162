"""The search for each budget's nearest looser budget (paper 4.3, adaptation goals compilation)."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]
Ranks: TypeAlias = NDArray[np.int32]

#: Decimals of logarithms in comparisons of distances, so that rounding errors do not break ties.
DECIMALS = 9

_FEW_QUERIES = 256
_BLOCK = 512


def log_sums(limits: Floats, stand_ins: Floats) -> Floats:
    """Return how loose budgets are overall: the sums of the logarithms of their limits.

    The sum of the log-ratios of two budgets is the difference of these sums, so the nearest of several looser
    budgets is always the one with the smallest sum.

    Args:
        limits: [axes, budgets], above 0, inf for no limit.
        stand_ins: [axes], used instead of inf.
    """
    finite = np.where(np.isinf(limits), stand_ins[:, None], limits)
    sums: Floats = np.round(np.log(finite).sum(axis=0), DECIMALS)
    return sums


def nearest_looser(limits: Floats, sums: Floats) -> Indices:
    """Return, for each budget, the looser one with the smallest sum, the first of several; -1 if none.

    The budgets are recursively divided into boxes. A box keeps only candidates that are at least as loose as
    its tightest corner. Candidates are sorted by distance, and the first one that is looser than the box's
    loosest corner is looser than every budget in the box, so all later ones are dropped. Few candidates
    remain for pairwise comparison.

    Args:
        limits: [axes, budgets], all budgets distinct.
        sums: [budgets], their `log_sums`.
    """
    if sums.size < 2:  # as in most submissions
        return np.full(sums.size, -1, dtype=np.int64)
    by_sum = np.lexsort((np.arange(sums.size), sums))
    nearest = np.full(sums.size, -1, dtype=np.int64)
    # Only the order along each axis matters: ranks are exact, and need half the memory.
    ranks = np.empty(limits.shape, dtype=np.int32)
    for axis, column in enumerate(limits):
        ranks[axis] = np.unique(column[by_sum], return_inverse=True)[1]
    boxes = [(np.arange(sums.size), np.arange(sums.size))]
    while boxes:
        queries, candidates = boxes.pop()
        candidates = _useful(ranks, queries, candidates)
        if queries.size <= _FEW_QUERIES:
            _scan(ranks, queries, candidates, nearest)
        else:
            boxes += [(half, candidates) for half in _halves(ranks, queries)]
    parents = np.full(sums.size, -1, dtype=np.int64)
    parents[by_sum] = np.where(nearest < 0, -1, by_sum[nearest])
    return parents


def _useful(ranks: Ranks, queries: Indices, candidates: Indices) -> Indices:
    """Return the candidates (ascending) that can be the nearest looser budget of a query in the box."""
    box = ranks[:, queries]
    low, high = box.min(axis=1), box.max(axis=1)
    candidates = _at_least(ranks, candidates, low)
    above = _at_least(ranks, candidates, high)
    # The highest corner itself may be one of the queries.
    above = above[(ranks[:, above] > high[:, None]).any(axis=0)]
    return candidates[: np.searchsorted(candidates, above[0]) + 1] if above.size else candidates


def _at_least(ranks: Ranks, candidates: Indices, corner: Ranks) -> Indices:
    for column, limit in zip(ranks, corner, strict=True):
        candidates = candidates[column[candidates] >= limit]
    return candidates


def _halves(ranks: Ranks, queries: Indices) -> list[Indices]:
    """Split a box at the median of its longest side."""
    box = ranks[:, queries]
    side = box[int(np.argmax(np.ptp(box, axis=1)))]
    middle = queries.size // 2
    order = np.argpartition(side, middle)
    return [queries[order[:middle]], queries[order[middle:]]]


def _scan(ranks: Ranks, queries: Indices, candidates: Indices, nearest: Indices) -> None:
    """Compare pairwise, nearest candidates first; remove queries once their parent is found."""
    for start in range(0, candidates.size, _BLOCK):
        block = candidates[start : start + _BLOCK]
        looser = queries[:, None] != block
        for column in ranks:
            looser &= column[queries, None] <= column[block]
        first = looser.argmax(axis=1)
        done = looser[np.arange(queries.size), first]
        nearest[queries[done]] = block[first[done]]
        queries = queries[~done]
        if not queries.size:
            return
