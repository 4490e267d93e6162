"""The nested networks' settings; they need no TensorFlow."""

from pydantic import Field

from executors.contract.params import Params


class NestedParams(Params):
    """The settings of nested networks.

    Attributes:
        segment_steps: Training steps of each network that has others nested in it, once for all goals between
            its size and a quarter of that.
        tune_steps: Additional steps that tune the network of one goal.
    """

    segment_steps: int = Field(default=1200, ge=1)
    tune_steps: int = Field(default=0, ge=0)
