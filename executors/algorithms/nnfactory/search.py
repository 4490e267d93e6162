"""The slice of a goal: the feasible limit with the best expected quality (NN-Factory 3.5)."""

from collections.abc import Sequence
from functools import partial

import keras
import numpy as np
import numpy.typing as npt

from executors.algorithms.nnfactory.supernet import Assembly, Supernet
from executors.contract.slices import Slice
from executors.structure.edits.outputs import narrow_outputs
from executors.structure.signature import output_names
from mistify.config.task import TaskConfig
from mistify.costs.axes import costs_of
from mistify.costs.budget import Budget, exceeded, tightest_ratio
from mistify.costs.profiles import Profile
from mistify.tflite.slicing import OpenUnits

#: Numbers of the classes that stay.
Classes = npt.NDArray[np.intp]


def slices_of(supernet: Supernet, task: TaskConfig) -> tuple[Slice, ...]:
    """Return the slices of a task, the smallest limit first; of equal ones the first.

    Their costs are those of the supernet at their widths, and with all of its classes. Latency needs no
    regression on measured slices, as in the paper.

    Raises:
        MistifyError: INVALID_CONFIG: there is no such property.
        InvalidValue: There is no such class.
    """
    encoded, limits = supernet.encoded(task), supernet.quality.tried_limits()
    classes = np.flatnonzero(encoded) if task.classes else None
    slices: dict[bytes, Slice] = {}
    for limit, assembly in zip(limits, supernet.assemblies(encoded, limits), strict=True):
        opened = np.concatenate(list(assembly.open.values())).tobytes()
        if opened not in slices:
            slices[opened] = _slice(supernet, assembly, supernet.quality.expected(limit), classes)
    return tuple(slices.values())


def best_slice(choices: Sequence[Slice], budget: Budget, profiles: tuple[Profile, ...]) -> Slice:
    """Return the best slice within a budget; if there is none, the one that exceeds it least.

    More open units are not always better: quality may drop close to the limit 1, which is rarely trained.

    Args:
        profiles: The hardware whose latency counts.
    """
    costs = {one: costs_of(one.cost, profiles) for one in choices}
    within = [one for one in choices if not exceeded(costs[one], budget)]
    if within:
        return max(within, key=lambda one: one.expected)
    return max(choices, key=lambda one: tightest_ratio(costs[one], budget))


def _slice(supernet: Supernet, assembly: Assembly, expected: float, classes: Classes | None) -> Slice:
    rows = () if classes is None else (OpenUnits(classes),)
    return Slice(
        units=(*supernet.units(assembly), *rows),
        cost=supernet.structure.network(assembly.widths),
        expected=expected,
        network=partial(_network, supernet, assembly, classes),
    )


def _network(supernet: Supernet, assembly: Assembly, classes: Classes | None) -> keras.Model:
    network = supernet.slice(assembly)
    if classes is None:
        return network
    (output,) = output_names(network)
    return narrow_outputs(network, output, classes.tolist())
