"""Choice of precisions for goals that leave it to the server."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Final

from mistify.config.data.targets import missed, reached, serves_better
from mistify.config.package.compression import CompressionConfig
from mistify.config.package.tuning import TuningConfig
from mistify.config.porting import PortingConfig
from mistify.config.reading import goal_budget
from mistify.costs.budget import FLOPS, Budget, Costs, meets, tightest_ratio
from mistify.costs.quantization import PRECISIONS, Quantization
from mistify.jobs.formatting import excess
from mistify.jobs.job import Goal
from mistify_server.planning.forecast.precisions import KNOWN_LOSS
from mistify_server.planning.forecast.scaling import CostScaling
from mistify_server.tasks.estimates import EdgeEstimates
from mistify_server.tasks.results import AdaptResult, Inspection, PackageResult, Result

#: Relative loss of accuracy from halving a network in the same runs: ResNet-8 from 1x to 0.5x.
_LOSS_OF_HALVING: Final = 0.066

#: Tolerated relative loss of accuracy beyond the expected one; for a mean squared error, its relative
#: increase.
_TOLERATED_LOSS: Final = 0.01
_TOLERATED_GROWTH: Final = 0.1


def choose_precision(config: PortingConfig, inspection: Inspection) -> tuple[PortingConfig, str]:
    """Choose a precision for a config, and return the reason; a config with a precision is unchanged.

    At each precision, the limits leave a share of the network (`share_within`). The choice minimizes the
    expected loss from the cut to that share and from the precision itself. If the limits do not depend on the
    precision, such as limits on multiply-adds, the choice is float32. Latency does depend on it: this machine
    has a profile for each precision, and measured devices have one for integers. Hardware that does not run
    every precision leaves no choice, and the reason is empty.
    """
    if not config.leaves_precision:
        return config, ""
    possible = [each for each in allowed(config.tuning, config.compression) if each in config.precisions]
    if config.precisions != PRECISIONS:
        return _at(config, next(iter(possible), config.precisions[0])), ""
    configs = {precision: _at(config, precision) for precision in possible}
    budgets = {precision: goal_budget(at, inspection.costs) for precision, at in configs.items()}
    within_reach = {
        precision: budget for precision, budget in budgets.items() if _reachable(budget, inspection.floor)
    }
    shares = {
        precision: share_within(budget, inspection.costs, inspection.estimates)
        for precision, budget in (within_reach or budgets).items()
    }
    chosen = min(shares, key=lambda precision: _expected_loss(precision, shares))
    return configs[chosen], _reason(chosen, shares)


def share_within(budget: Budget, source: Costs, estimates: EdgeEstimates | None) -> float:
    """Return the share of a source's multiply-adds that limits leave if all widths are scaled uniformly.

    Costs do not fall in proportion: integers are faster with wide kernels, but may be slower with narrow
    ones.

    Args:
        estimates: Costs of scaled networks. Without them, or with a limit on another axis, the share is that
            of the cost with the largest required reduction.
    """
    if estimates is None or not budget.keys() <= estimates.scaled[0].keys():
        return tightest_ratio(source, budget)
    scaling = CostScaling(estimates.scaled, source)
    return min(1.0, scaling.costs(scaling.within(budget))[FLOPS] / source[FLOPS])


@dataclass(frozen=True)
class Attempt:
    """A goal at a precision, its network, and the packaging result."""

    goal: Goal
    adapted: AdaptResult
    result: Result

    @property
    def within_limits(self) -> bool:
        """Return whether there is a package that meets all limits."""
        return isinstance(self.result, PackageResult) and meets(self._costs, self.goal.spec.budget)

    @property
    def meets(self) -> bool:
        """Return whether the package meets the goal on the validation data."""
        return (
            self.within_limits
            and isinstance(self.result, PackageResult)
            and reached(self.goal.spec.targets, self.result.validation_scores)
        )

    @property
    def falls_short(self) -> bool:
        """Return whether the package is missing, misses a target, or lost more accuracy than expected."""
        package, metric, targets = self.result, self.goal.metric, self.goal.spec.targets
        if not isinstance(package, PackageResult):
            return True
        if reached(targets, self.adapted.scores) and not reached(targets, package.validation_scores):
            return True
        before, after = self.adapted.accuracy, package.validation_accuracy
        if not metric.is_share:
            return after > (1 + _TOLERATED_GROWTH) * before
        expected = KNOWN_LOSS[self.goal.spec.quantization.precision.stored_as] + _TOLERATED_LOSS
        return before - after > expected

    @property
    def lost(self) -> float:
        """Return the share of the checkpoint's accuracy lost by the package; 1 without a package.

        For an error metric, it is the share of the package's error that packaging added.
        """
        if not isinstance(self.result, PackageResult):
            return 1.0
        before, after = self.adapted.accuracy, self.result.validation_accuracy
        better, worse = (before, after) if self.goal.metric.is_share else (after, before)
        return 1 - worse / better if better > 0 else 0.0

    def improved(self, attempt: "Attempt") -> "Attempt":
        """Return the given attempt if it meets all limits and this one does not or serves the goal less well.

        The comparison uses the scores on the validation data.
        """
        package, targets = attempt.result, self.goal.spec.targets
        if not isinstance(package, PackageResult) or not attempt.within_limits:
            return self
        metric = package.validation_metric or self.goal.metric
        if not isinstance(self.result, PackageResult):
            why = "with which it could not be packaged"
        elif not self.within_limits:
            why = f"with which it has {excess(self._costs, self.goal.spec.budget)}"
        elif not serves_better(metric, package.validation_scores, self.result.validation_scores, targets):
            return self
        elif not metric.better(package.validation_accuracy, self.result.validation_accuracy):
            why = f"with which {missed(targets, self.result.validation_scores)}"
        elif attempt.adapted == self.adapted:
            figures = metric.shown(self.result.validation_accuracy), metric.shown(self.adapted.accuracy)
            why = f"with which {metric} was {figures[0]}, compared with the checkpoint's {figures[1]}"
        else:
            why = f"with which {metric} was {metric.shown(self.result.validation_accuracy)}"
        before, now = (_as_text(goal.spec.quantization.precision) for goal in (self.goal, attempt.goal))
        choice = f"{now} instead of {before}, {why}"
        return replace(attempt, goal=replace(attempt.goal, precision_choice=choice))

    def after_trying(self, precisions: Collection[Quantization]) -> "Attempt":
        """Return the attempt; if it misses the goal, with a note of the precisions that also failed."""
        vain = [_as_text(each) for each in precisions if each is not self.goal.spec.quantization.precision]
        if self.meets or not vain:
            return self
        choice = f"{self.goal.precision_choice}; the goal was missed with {' and '.join(vain)} as well"
        return replace(self, goal=replace(self.goal, precision_choice=choice))

    @property
    def _costs(self) -> Costs:
        package = self.result
        if not isinstance(package, PackageResult):
            return self.adapted.costs
        return {**self.adapted.costs, **package.achieved, **package.measured}


def safer(attempt: Attempt) -> Iterator[Goal]:
    """Yield a goal at each precision with a smaller expected loss than the server's choice, closest first.

    Only precisions at which the same network meets all limits are considered. Quantization-aware training
    does not change the costs of integers.

    Args:
        attempt: The attempt with the precision that was chosen.
    """
    goal, costs = attempt.goal, attempt.adapted.costs
    if not goal.precision_choice:
        return
    known = list(KNOWN_LOSS)
    closest = reversed(known[: known.index(goal.spec.quantization.precision)])
    with_training = [Quantization.INT8_QAT] if goal.spec.quantization.precision is Quantization.INT8 else []
    for precision in (*with_training, *closest):
        at = at_other_precision(goal, precision)
        if at.spec.budget.keys() <= costs.keys() and meets(costs, at.spec.budget):
            yield at


def others(
    attempt: Attempt, source: Costs, floor: Costs, estimates: EdgeEstimates | None = None
) -> Iterator[Goal]:
    """Yield a goal at each other precision that may serve it better, most promising first.

    Each needs a separate network. If all limits are met, these are the precisions that allow a larger
    network, and those with a smaller expected loss than the package's actual loss.

    Args:
        attempt: The attempt with the precision that was chosen.
        floor: The minimum costs to which the source can be cut.
        estimates: See `share_within`.
    """
    goal, spec = attempt.goal, attempt.goal.spec
    if not goal.precision_choice or spec.branches is not None:
        return
    left = share_within(spec.budget, source, estimates)
    specs = {
        precision: spec.with_precision(precision) for precision in allowed(spec.tuning, spec.compression)
    }
    shares = {precision: share_within(at.budget, source, estimates) for precision, at in specs.items()}
    lost = attempt.lost - _LOSS_OF_HALVING * log2(left)
    for precision in sorted(specs, key=lambda precision: _expected_loss(precision, shares)):
        budget = specs[precision].budget
        same = precision is spec.quantization.precision.stored_as
        likely = (
            not attempt.within_limits or shares[precision] > left or _expected_loss(precision, shares) < lost
        )
        if not same and likely and budget != spec.budget and _reachable(budget, floor):
            yield replace(goal, spec=specs[precision])


def at_other_precision(goal: Goal, precision: Quantization) -> Goal:
    """Return the goal at another precision, with the same limits."""
    return replace(goal, spec=goal.spec.with_precision(precision))


def _reachable(budget: Budget, floor: Costs) -> bool:
    return all(floor.get(axis, 0.0) <= limit for axis, limit in budget.items())


def _at(config: PortingConfig, precision: Quantization) -> PortingConfig:
    quantization = config.quantization.model_copy(update={"precision": precision})
    return config.model_copy(update={"quantization": quantization})


def allowed(tuning: TuningConfig, compression: CompressionConfig | None) -> Sequence[Quantization]:
    """Return the precisions at which a package can be made, safest first.

    Args:
        tuning: On-device training settings, which require float32, or adaptation, which integer activations
            do not allow.
    """
    if tuning.trainable != "none":
        return (Quantization.NONE,)
    clustered = compression is not None and compression.clusters is not None
    # Each channel of a kernel has its own scale, and therefore its own set of values.
    floats = clustered or tuning.adaptation
    return [precision for precision in KNOWN_LOSS if not (floats and precision.integer)]


def _expected_loss(precision: Quantization, shares: Mapping[Quantization, float]) -> float:
    """Return the expected relative loss of accuracy at a precision, including the cut that it requires."""
    return KNOWN_LOSS[precision] - _LOSS_OF_HALVING * log2(shares[precision])


def _reason(chosen: Quantization, shares: Mapping[Quantization, float]) -> str:
    if len(shares) == 1:
        return f"{_as_text(chosen)}, the only precision at which the goal can be met"
    rest = ", ".join(
        f"{_as_text(precision)} {share:.0%}"
        for precision, share in sorted(shares.items(), key=lambda item: -item[1])
        if precision is not chosen
    )
    return f"{_as_text(chosen)}, at which {shares[chosen]:.0%} of the source fits the limits ({rest})"


def _as_text(precision: Quantization) -> str:
    return "float32" if precision is Quantization.NONE else precision.value
