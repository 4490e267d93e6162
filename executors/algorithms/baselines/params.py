"""The baselines' settings, defined without TensorFlow."""

from pydantic import Field

from executors.pruning.params import IterativePruningParams


class RandomSearchParams(IterativePruningParams):
    """Random search's settings.

    Attributes:
        candidates: Architectures measured before each cut.
    """

    candidates: int = Field(default=30, ge=1, le=10_000)
