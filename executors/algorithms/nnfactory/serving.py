"""The tasks of a trained supernet, with the costs of their slices by limit."""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from executors.algorithms.nnfactory.supernet import Supernet
from mistify.costs.axes import costs_of
from mistify.costs.profiles import Profile
from mistify.scenarios.served import ServedTasks

#: Tasks over which the costs of slices are averaged; the costs of single tasks hardly differ.
_TASKS: Final = 8


def served_tasks(supernet: Supernet, profiles: tuple[Profile, ...]) -> ServedTasks:
    """Return the tasks of a supernet.

    Args:
        supernet: A trained supernet.
        profiles: The hardware whose latency is among the costs.
    """
    each = list(_costs(supernet, profiles))
    mean = {axis: tuple(np.mean([own[axis] for own in each], axis=0).tolist()) for axis in each[0]}
    return ServedTasks(space=supernet.space, classes=supernet.classes, quality=supernet.quality, costs=mean)


def _costs(supernet: Supernet, profiles: tuple[Profile, ...]) -> Iterator[Mapping[str, list[float]]]:
    """Yield the costs of some tasks' slices by axis [limits]."""
    names = supernet.quality.tasks
    for number in np.unique(np.linspace(0, len(names) - 1, _TASKS).astype(int)):
        task = supernet.space.encode(supernet.space.parse(names[number]))
        slices = supernet.assemblies(task, supernet.limits)
        costs = [costs_of(supernet.structure.network(one.widths), profiles) for one in slices]
        yield {axis: [own[axis] for own in costs] for axis in costs[0]}
