"""Gates from their logits: which units stay open within a limit (NN-Factory 3.3 and 5.2)."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt


def open_units(
    logits: npt.NDArray[np.float32], limit: float, units: Sequence[int], least: Sequence[int]
) -> list[npt.NDArray[np.bool_]]:
    """Return whether each unit is open, for every group [units].

    Units with logits above 0 are open. If they exceed the limit, those with the lowest logits are closed
    ("pruning based on importance", 5.2). Each group keeps its minimum number, even beyond the limit.

    Args:
        logits: Weights of the gates, group after group [all units].
        limit: The largest share of all units that may be open.
        units: Number of units of each group.
        least: Minimum number of open units of each group.
    """
    parts = [slice(end - count, end) for count, end in zip(units, accumulate(units), strict=True)]
    needed = np.concatenate([_highest(logits[part], count) for part, count in zip(parts, least, strict=True)])
    ranked = np.where(needed, np.inf, logits)
    allowed = max(int(limit * len(logits) + 1e-6), int(needed.sum()))
    kept = _highest(ranked, allowed) & (ranked > 0)
    return [kept[part] for part in parts]


def _highest(values: npt.NDArray[np.floating], count: int) -> npt.NDArray[np.bool_]:
    """Return whether each value is among the highest; earlier values win ties."""
    chosen = np.zeros(len(values), bool)
    chosen[np.argsort(-values, kind="stable")[:count]] = True
    return chosen
