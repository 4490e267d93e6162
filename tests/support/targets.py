"""Short forms for the targets of goals."""

from mistify.config.data.metric import Metric
from mistify.config.data.targets import OVERALL, Target


def overall(value: float | None, metric: Metric = Metric.ACCURACY) -> tuple[Target, ...]:
    """Return the target for all outputs together, or no target for None."""
    return () if value is None else (Target(OVERALL, metric, value),)
