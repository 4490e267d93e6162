"""Precisions of goals that leave them to the server."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Final

from mistify.config.porting import PortingConfig
from mistify.config.reading import goal_budget
from mistify.costs.axes import at_precision
from mistify.costs.budget import Budget, Costs, meets, share_left
from mistify.costs.quantization import Quantization
from mistify.jobs.job import Goal
from mistify_server.tasks.results import AdaptResult, Inspection, PackageResult, Result

#: What a precision has cost at the most, as a share (benchmarks/RESULTS.md, precision); the safest first.
KNOWN_LOSS: Final[Mapping[Quantization, float]] = {
    Quantization.NONE: 0.0,
    Quantization.FLOAT16: 0.0003,
    Quantization.DYNAMIC: 0.0023,
    Quantization.INT8: 0.0043,
}

#: What halving a network costs, likewise: ResNet-8 from 1x to 0.5x.
_LOSS_OF_HALVING: Final = 0.04

#: Accuracy that a package may have lost beside what is known, as a share; and a mean squared error gained.
_TOLERATED_LOSS: Final = 0.01
_TOLERATED_GROWTH: Final = 0.1


def choose_precision(config: PortingConfig, inspection: Inspection) -> tuple[PortingConfig, str]:
    """Choose the precision of a config, and give the reason; a config that names one stays as it is.

    At each precision a limit leaves a share of the network: the limit over the source's cost. The chosen
    precision loses least by cutting to the smallest of these shares and by the precision itself. With limits
    that do not depend on the precision, such as on multiply-adds, that is float32. Latencies depend on it:
    this machine has a profile for each, and measured devices have one for integers.

    Args:
        config: The config.
        inspection: Of the source.
    """
    if not config.leaves_precision:
        return config, ""
    configs = {precision: _at(config, precision) for precision in _allowed(config)}
    budgets = {precision: goal_budget(at, inspection.costs) for precision, at in configs.items()}
    within_reach = {
        precision: budget for precision, budget in budgets.items() if _reachable(budget, inspection.floor)
    }
    shares = {
        precision: share_left(inspection.costs, budget)
        for precision, budget in (within_reach or budgets).items()
    }
    chosen = min(
        shares, key=lambda precision: KNOWN_LOSS[precision] - _LOSS_OF_HALVING * log2(shares[precision])
    )
    return configs[chosen], _reason(chosen, shares)


@dataclass(frozen=True)
class Attempt:
    """A goal at a precision, and the result of packaging its network at it."""

    goal: Goal
    result: Result

    def falls_short(self, adapted: AdaptResult) -> bool:
        """Return whether the package is missing, misses a target, or lost more accuracy than expected."""
        package, metric, target = self.result, self.goal.metric, self.goal.accuracy_target
        if not isinstance(package, PackageResult):
            return True
        if metric.reaches(adapted.accuracy, target) and not metric.reaches(package.accuracy, target):
            return True
        if not metric.is_share:
            return package.accuracy > (1 + _TOLERATED_GROWTH) * adapted.accuracy
        expected = KNOWN_LOSS[self.goal.quantization.precision] + _TOLERATED_LOSS
        return adapted.accuracy - package.accuracy > expected

    def improved(self, attempt: "Attempt", adapted: AdaptResult) -> "Attempt":
        """Return the attempt if it meets all limits and is more accurate; else this one."""
        package = attempt.result
        if not isinstance(package, PackageResult) or not meets(
            {**adapted.costs, **package.achieved, **package.measured}, attempt.goal.budget
        ):
            return self
        if isinstance(self.result, PackageResult):
            metric = self.goal.metric
            if not metric.better(package.accuracy, self.result.accuracy):
                return self
            figures = metric.shown(self.result.accuracy), metric.shown(adapted.accuracy)
            why = f"as which {metric} was {figures[0]} where the checkpoint has {figures[1]}"
        else:
            why = "as which it could not be packaged"
        before, now = (_in_words(goal.quantization.precision) for goal in (self.goal, attempt.goal))
        choice = f"{now}, in place of {before}, {why}"
        return replace(attempt, goal=replace(attempt.goal, precision_choice=choice))


def safer(goal: Goal, adapted: AdaptResult) -> Iterator[Goal]:
    """Yield a goal at each precision that is known to lose less than the server's choice, the closest first.

    Args:
        goal: With the precision that was chosen.
        adapted: Its network, which at these precisions meets all limits as well.
    """
    if not goal.precision_choice:
        return
    known = list(KNOWN_LOSS)
    for precision in reversed(known[: known.index(goal.quantization.precision)]):
        budget = {at_precision(axis, precision): limit for axis, limit in goal.budget.items()}
        if budget.keys() <= adapted.costs.keys() and meets(adapted.costs, budget):
            quantization = goal.quantization.model_copy(update={"precision": precision})
            yield replace(goal, quantization=quantization, budget=budget)


def _reachable(budget: Budget, floor: Costs) -> bool:
    return all(floor.get(axis, 0.0) <= limit for axis, limit in budget.items())


def _at(config: PortingConfig, precision: Quantization) -> PortingConfig:
    quantization = config.quantization.model_copy(update={"precision": precision})
    return config.model_copy(update={"quantization": quantization})


def _allowed(config: PortingConfig) -> Sequence[Quantization]:
    """Return the precisions at which a config's package can be made, the safest first."""
    if config.tuning.trainable != "none":
        return (Quantization.NONE,)
    clustered = config.compression is not None and config.compression.clusters is not None
    # Each channel of a kernel has a scale of its own, and so values of its own.
    return [precision for precision in KNOWN_LOSS if not (clustered and precision.integer)]


def _reason(chosen: Quantization, shares: Mapping[Quantization, float]) -> str:
    if len(shares) == 1:
        return f"{_in_words(chosen)}, the only precision at which the goal can be met"
    rest = {precision: share for precision, share in shares.items() if precision is not chosen}
    alternative = Quantization.NONE if Quantization.NONE in rest else max(rest, key=rest.__getitem__)
    return (
        f"{_in_words(chosen)}, at which the limits leave {shares[chosen]:.0%} of the source, "
        f"against {rest[alternative]:.0%} as {_in_words(alternative)}"
    )


def _in_words(precision: Quantization) -> str:
    return "float32" if precision is Quantization.NONE else precision.value
