"""The outcomes of goals: met, unmet or failed, with the reason."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from mistify.config.data.metric import Metric
from mistify.config.data.targets import missed, reached, serves_better
from mistify.costs.budget import Costs, exceeded, meets, of_package
from mistify.errors import OUTAGES, ErrorCode, MistifyError
from mistify.jobs.formatting import excess
from mistify.jobs.job import Goal, GoalState, PackageFile
from mistify.jobs.plan import Estimate
from mistify_server.store.plans import NodePlan
from mistify_server.tasks.results import AdaptResult, BranchResult, PackageResult, Result, TaskFailure

#: Relative loss of the tuned source's accuracy that needs no remark if there is no forecast.
_TOLERATED_LOSS: Final = 0.1

#: Relative loss of the parent's accuracy beyond which a network counts as collapsed.
_COLLAPSE: Final = 0.5


def packaged_goal(
    goal: Goal,
    adapted: AdaptResult,
    branches: BranchResult | None,
    package: PackageResult,
    files: Iterable[PackageFile],
    *,
    teacher_accuracy: float,
    foreseen: Estimate | None,
) -> Goal:
    """Return the goal as met or unmet by its package.

    Args:
        goal: The goal before packaging.
        adapted: The goal's checkpoint.
        branches: The branches; None if the goal has none.
        teacher_accuracy: Accuracy of the tuned source on the validation data.
        foreseen: The predicted relative loss of that accuracy; None without a forecast.
    """
    adapted_costs = of_package(adapted.costs, integer_inputs=goal.spec.quantization.integer_inputs)
    achieved = {**adapted_costs, **package.achieved}
    reason = _shortfall(goal, {**adapted.costs, **achieved, **package.measured}, adapted, package)
    unforeseen = _unforeseen_loss(goal, package, teacher_accuracy, foreseen)
    return replace(
        goal,
        state=GoalState.UNMET if reason else GoalState.MET,
        achieved=achieved,
        measured=package.measured,
        accuracy=package.accuracy,
        metric=package.metric or goal.metric,
        reason=reason,
        note="; ".join(filter(None, (goal.note, package.note, unforeseen))),
        seconds=adapted.seconds + (branches.seconds if branches else 0.0),
        steps=adapted.steps + (branches.steps if branches else 0),
        files=tuple(files),
        branch_figures=package.branches,
        output_scores=package.output_scores,
    )


def _unforeseen_loss(
    goal: Goal, package: PackageResult, teacher_accuracy: float, foreseen: Estimate | None
) -> str:
    """Return a remark on an accuracy loss beyond the forecast; empty if there is none.

    A package of one task is not compared, because the source's accuracy covers all tasks together.
    """
    if goal.spec.task is not None:
        return ""
    metric, accuracy = package.validation_metric or goal.metric, package.validation_accuracy
    lost = metric.lost(accuracy, teacher_accuracy)
    if foreseen is None:
        most, expected = _TOLERATED_LOSS, f"{_TOLERATED_LOSS:.0%}"
    else:
        most = foreseen.mean + foreseen.margin
        expected = f"the predicted {foreseen.mean:.1%} ± {foreseen.margin:.1%}"
    if lost <= most:
        return ""
    against = f"{metric.shown(accuracy)} against {metric.shown(teacher_accuracy)}"
    return (
        f"lost {lost:.1%} of the tuned source's {metric}, more than {expected}: {against} on the validation "
        "data"
    )


def collapsed(result: AdaptResult, parent: AdaptResult, metric: Metric) -> bool:
    """Check whether a network has collapsed, that is, lost most of its parent's accuracy.

    Args:
        parent: The result from which the network was adapted.
    """
    return metric.lost(result.accuracy, parent.accuracy) > _COLLAPSE


def replaces(again: AdaptResult, result: AdaptResult, node: NodePlan, metric: Metric) -> bool:
    """Check whether a network serves a node's goals better than another; the budget takes precedence.

    Args:
        again: The result of the new network.
        result: The result of the existing network.
    """
    within, other_within = (meets(each.costs, node.budget) for each in (again, result))
    if within != other_within:
        return within
    return serves_better(metric, again.scores, result.scores, node.targets)


def failed_goal(goal: Goal, reason: str) -> Goal:
    """Return a goal that has failed."""
    return replace(goal, state=GoalState.FAILED, reason=reason)


def outage_in(result: Result) -> MistifyError | None:
    """Return why a task has to be repeated later; None if it has a result, or has failed for good."""
    if not isinstance(result, TaskFailure):
        return None
    code = ErrorCode.__members__.get(result.code, ErrorCode.INTERNAL)  # of another version of the worker
    return MistifyError(code, failure_reason(result)) if code in OUTAGES else None


def failure_reason(result: Result) -> str:
    """Describe why a task did not return the expected result."""
    if not isinstance(result, TaskFailure):
        return f"the worker answered with {result.kind}"
    return "\n".join([result.message, *map(str, result.problems)])


def _shortfall(goal: Goal, costs: Costs, adapted: AdaptResult, package: PackageResult) -> str:
    """Describe the limits and the targets that a package misses; empty if it meets the goal.

    Args:
        costs: The checkpoint's costs, replaced by the package's measured costs where available.
        adapted: The checkpoint, which may have had a higher target than this goal.
    """
    over = excess(costs, goal.spec.budget)
    if over:
        exceeded_before = adapted.reason and exceeded(adapted.costs, goal.spec.budget)
        return adapted.reason if exceeded_before else f"{over}, measured on the package"
    missed_targets = missed(goal.spec.targets, package.test_scores)
    if not missed_targets:
        return ""
    if adapted.reason and not reached(goal.spec.targets, adapted.scores):
        return f"{missed_targets} on the test data; {adapted.reason}"
    form = goal.spec.quantization.precision.value
    if goal.spec.compression is not None:
        form += f" with {goal.spec.compression}"
    before = ", ".join(
        f"{target.output} {figure:.4f}".strip()
        for target in goal.spec.targets
        if target.missed(package.test_scores)
        and (figure := adapted.scores.of(target.output, target.metric)) is not None
    )
    return (
        f"{missed_targets} on the test data as {form}; the checkpoint has {before} in float32 on the "
        "validation data"
    )
