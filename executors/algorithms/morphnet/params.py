"""MorphNet's settings, defined without TensorFlow."""

from pydantic import Field

from executors.pruning.params import IterativePruningParams


class MorphNetParams(IterativePruningParams):
    """MorphNet's settings.

    Attributes:
        threshold: Importance below which a unit is cut, as a share of the mean in its channel group at the
            group's width in the source; scaled by the square root of the number of layers that produce the
            group.
        init_reg_strength: Loss of a unit per multiply-add of the network at the start of an edge, up to 0.03;
            the other costs are scaled so that each has the same influence as the multiply-adds.
    """

    threshold: float = Field(default=0.1, ge=0, lt=1)
    init_reg_strength: float = Field(default=1e-9, ge=0)
