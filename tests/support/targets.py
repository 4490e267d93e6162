"""Targets of goals, in short."""

from mistify.config.data.metric import Metric
from mistify.config.data.targets import OVERALL, Target


def overall(value: float | None, metric: Metric = Metric.ACCURACY) -> tuple[Target, ...]:
    """What all outputs together have to reach; nothing for None."""
    return () if value is None else (Target(OVERALL, metric, value),)
