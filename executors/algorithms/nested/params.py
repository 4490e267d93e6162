"""Nested networks' settings, defined without TensorFlow."""

from pydantic import Field

from executors.contract.params import Params


class NestedParams(Params):
    """The settings of nested networks.

    Attributes:
        segment_steps: Training steps of each network that contains nested ones, once for all goals between
            its size and a quarter of it.
        tune_steps: Additional steps that tune the network of one goal.
    """

    segment_steps: int = Field(default=1200, ge=1)
    tune_steps: int = Field(default=0, ge=0)
