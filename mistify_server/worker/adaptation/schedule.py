"""Structure-loss scheduling: the weights of the constraints (paper 4.3)."""

from mistify.costs.budget import Budget, Costs


class StructureLossSchedule:
    """`w_i = Share_i / sum Share`, `Share_i = (target_i - now_i) / (target_i - start_i)`.

    Weights start equal and are updated every `interval` training steps. A constraint that is met has share 0;
    when all are met, the weights are equal again.

    Args:
        budget: The goal's limits (`target_i`).
        start: The costs at the start of the edge.
        interval: Training steps between updates (the paper's k).
    """

    def __init__(self, budget: Budget, start: Costs, interval: int) -> None:
        self._budget = budget
        self._start = start
        self._interval = interval
        self._next = interval
        self._weights = _normalised({axis: float(start[axis] > limit) for axis, limit in budget.items()})

    def weights(self, now: Costs, step: int) -> dict[str, float]:
        """Return the weight of each constraint after `step` steps, at the costs `now`; they sum to 1."""
        if step >= self._next:
            self._next = step + self._interval
            self._weights = _normalised({axis: self._share(axis, now) for axis in self._budget})
        return dict(self._weights)

    def _share(self, axis: str, now: Costs) -> float:
        target, start = self._budget[axis], self._start[axis]
        if now[axis] <= target:
            return 0.0
        return (target - now[axis]) / (target - start) if start > target else 1.0


def _normalised(shares: dict[str, float]) -> dict[str, float]:
    total = sum(shares.values())
    if total == 0:
        return dict.fromkeys(shares, 1 / len(shares))
    return {axis: share / total for axis, share in shares.items()}
