"""Whether targets are likely to be reached, by the estimates of what they are about."""

from collections.abc import Iterable, Iterator, Sequence

from mistify.config.targets import OVERALL, Target
from mistify.jobs.plan import Estimate, OutputEstimate


def expected_to_reach(targets: Iterable[Target], estimates: Sequence[OutputEstimate]) -> bool:
    """Check whether the mean of each estimate reaches its target."""
    return all(
        target.metric.reaches(estimate.mean, target.value) for target, estimate in _of(targets, estimates)
    )


def warning(targets: Iterable[Target], estimates: Sequence[OutputEstimate], steps: int) -> str:
    """Describe the targets that are missed by more than the uncertainty; empty if there are none.

    Args:
        targets: Of a goal.
        estimates: Of its network, with `OVERALL` for the metric by which networks are compared.
        steps: After which it is expected.
    """
    return "; ".join(_warnings(targets, estimates, steps))


def _warnings(targets: Iterable[Target], estimates: Sequence[OutputEstimate], steps: int) -> Iterator[str]:
    for target, estimate in _of(targets, estimates):
        metric = target.metric
        best = estimate.mean + (estimate.margin if metric.is_share else -estimate.margin)
        if not metric.reaches(best, target.value):
            named = metric.value if target.output == OVERALL else f"{target.output}: {metric}"
            shown = f"{metric.shown(estimate.mean)} ± {metric.shown(estimate.margin)}"
            yield (
                f"{named} {metric.shown(target.value)} is likely to be missed: {shown} is expected after "
                f"{steps:,} steps"
            )


def _of(targets: Iterable[Target], estimates: Sequence[OutputEstimate]) -> Iterator[tuple[Target, Estimate]]:
    """Yield each target of which there is an estimate, with that."""
    known = {(one.output, one.metric): one.estimate for one in estimates}
    for target in targets:
        if (target.output, target.metric) in known:
            yield target, known[target.output, target.metric]
