"""The tasks that a trained supernet serves, with the expected quality and costs of their networks."""

from collections.abc import Mapping

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

from mistify.scenarios.quality import Quality
from mistify.scenarios.space import TaskSpace


class ServedTasks(BaseModel):
    """The tasks that networks can be made for, and what can be expected of these networks.

    Attributes:
        space: The properties of tasks, and the trained tasks.
        classes: Names of a classifier's classes, in order, where a task is some of them; none for tasks with
            properties.
        quality: The scores of trained tasks within each limit.
        costs: Axis -> mean cost of a network within each of the limits of `quality`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    space: TaskSpace
    classes: tuple[str, ...] = ()
    quality: Quality
    costs: Mapping[str, tuple[float, ...]]

    @model_validator(mode="after")
    def _one_cost_each(self) -> "ServedTasks":
        if {len(own) for own in self.costs.values()} - {len(self.quality.limits)}:
            raise ValueError(f"expected a cost for each of the {len(self.quality.limits)} limits")
        return self

    def cost(self, axis: str, limit: float) -> float:
        """Return the mean cost on an axis within a limit, interpolated between measured limits."""
        return float(np.interp(np.log(limit), np.log(self.quality.limits), self.costs[axis]))
