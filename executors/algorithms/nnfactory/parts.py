"""The factory of a package: the trained supernet, from which devices cut slices of their own."""

from collections.abc import Iterator
from functools import partial

import keras
import numpy as np
import numpy.typing as npt

from executors.algorithms.nnfactory.supernet import Supernet
from executors.contract.package_parts import Factory, PackageParts
from executors.contract.slices import WholeNetwork
from mistify.package.factory import SlicedGroup
from mistify.wording import counted


def factory_parts(supernet: Supernet) -> PackageParts:
    """Return the factory of a trained supernet."""
    known = counted(len(supernet.quality.tasks), "task")
    factory = Factory(whole_network(supernet), supernet.assembler, supernet.space, supernet.quality)
    return PackageParts(
        factory=factory, note=f"with an assembler that makes networks for {known}, and for others like them"
    )


def whole_network(supernet: Supernet) -> WholeNetwork:
    """Return the network of a trained supernet, from which slices are cut."""
    groups = [SlicedGroup(name=group.name, units=group.units, least=group.least) for group in supernet.groups]
    return WholeNetwork(supernet.structure, groups, partial(_random_slices, supernet), supernet.classes)


def _random_slices(supernet: Supernet, count: int) -> Iterator[keras.Model]:
    """Yield slices for random tasks, each within another limit."""
    rng = np.random.default_rng(0)
    for limit in np.geomspace(supernet.limits[0], 1.0, count):
        (assembly,) = supernet.assemblies(_random_task(supernet, rng), [float(limit)])
        yield supernet.slice(assembly)


def _random_task(supernet: Supernet, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return a listed task, or half of all classes, encoded."""
    if supernet.classes:
        ranks = rng.permutation(len(supernet.classes))
        return (ranks < max(2, len(ranks) // 2)).astype(np.float32)
    tasks = list(supernet.space.listed)
    return supernet.space.encode(tasks[rng.integers(len(tasks))])
