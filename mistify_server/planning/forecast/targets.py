"""Comparison of predicted scores with targets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mistify.config.data.metric import Metric
from mistify.config.data.targets import OVERALL, Target
from mistify.jobs.plan import OutputEstimate
from mistify.wording import counted
from mistify_server.tasks.sources import DataSource


def expected_to_reach(targets: Iterable[Target], figures: Mapping[tuple[str, Metric], float]) -> bool:
    """Check whether figures, by output and metric, reach all targets that apply to them."""
    return all(
        target.metric.reaches(figures[target.output, target.metric], target.value)
        for target in targets
        if (target.output, target.metric) in figures
    )


def warning(targets: Iterable[Target], estimates: Sequence[OutputEstimate], steps: int) -> str:
    """Describe the targets that will be missed by more than the uncertainty; may be empty.

    Args:
        targets: Targets of a goal.
        estimates: Estimates of the goal's network, with `OVERALL` for the metric that ranks networks.
        steps: Number of training steps of the network.
    """
    return "; ".join(_warnings(targets, estimates, steps))


def _warnings(targets: Iterable[Target], estimates: Sequence[OutputEstimate], steps: int) -> Iterator[str]:
    known = {(one.output, one.metric): one.interval for one in estimates}
    for target in targets:
        metric, interval = target.metric, known.get((target.output, target.metric))
        if interval is None or metric.reaches(
            interval.high if metric.is_share else interval.low, target.value
        ):
            continue
        named = metric.value if target.output == OVERALL else f"{target.output}: {metric}"
        low, middle, high = map(metric.shown, (interval.low, interval.middle, interval.high))
        yield (
            f"{named} {metric.shown(target.value)} is likely to be missed: {middle} ({low} to {high}) is "
            f"expected after {counted(steps, 'step')}"
        )


def unused_inputs(data: DataSource, settings: Mapping[str, object]) -> str:
    """Warn about unused unlabelled inputs if nothing is learned from the source's outputs; may be empty.

    Args:
        settings: Settings of the batch's algorithm.
    """
    if data.unlabelled is None or data.trains_on_pseudo_labels or settings.get("distillation") != 0:
        return ""
    return (
        'the "unlabelled" inputs are unused: they have no labels, and with "distillation": 0 nothing is '
        "learned from the source's outputs"
    )
