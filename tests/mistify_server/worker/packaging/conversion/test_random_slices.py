"""Slices for random tasks and limits, as devices cut them, against the supernet with closed units masked."""

from collections.abc import Iterator

import numpy as np
import pytest

from mistify.costs.quantization import Quantization
from mistify.package.factory import ASSEMBLER, SUPERNET, FactoryStore
from mistify.scenarios.task import Task
from mistify.tflite.session import Session
from mistify.tflite.slicing import OpenUnits, sliced
from mistify_client.slicing.candidates import SliceCandidate, candidates
from tests.data.make_factory import supernet
from tests.mistify.tflite.networks_to_slice import masked_by_shape
from tests.mistify_server.worker.packaging.conversion.test_factory import files, store_of
from tests.support.factories import SPACE, images

#: The largest difference from the masked file, as a share of the largest output: sums have another order.
TOLERANCES = {
    Quantization.NONE: 1e-6,
    Quantization.FLOAT16: 1e-6,
    Quantization.DYNAMIC: 1e-6,
    Quantization.INT8: 0.0,
}

#: The kernels that read the units of a group [..., units], and the constants that make them [units, ...].
READERS = {"inner": (8, 3, 3, 24), "hidden": (1, 16)}
MAKERS = {"inner": ((24, 3, 3, 8), (24,)), "hidden": ((16, 32), (16,))}


def random_requests(count: int) -> Iterator[tuple[Task, float]]:
    """Yield tasks with any set of values, and limits that are even on a logarithmic scale."""
    rng = np.random.default_rng(5)
    for _ in range(count):
        chosen = [rng.choice(SPACE.axes["how many"])]
        chosen += [value for value in SPACE.axes["which"] if rng.random() < 0.5] or ["3"]
        yield SPACE.parse([str(value) for value in chosen]), float(0.05 ** rng.random())


def masked(network: bytes, store: FactoryStore, slice_: SliceCandidate) -> bytes:
    """The whole network with the scales and shifts of a slice, the closed units of which are masked."""
    whole, closed = [], {}
    for group, own in zip(store.groups, slice_.units, strict=True):
        scale, shift = np.ones(group.units, np.float32), np.zeros(group.units, np.float32)
        scale[own.kept], shift[own.kept] = own.scale, own.shift
        whole.append(OpenUnits(np.arange(group.units), scale, shift))
        closed[group.name] = np.setdiff1d(np.arange(group.units), own.kept)
    units = {group.name: group.units for group in store.groups}
    return masked_by_shape(sliced(network, store.places, whole), closed, units, READERS, MAKERS)


@pytest.mark.sampled
@pytest.mark.parametrize("precision", TOLERANCES)
def test_slices_for_random_tasks_and_limits_are_the_supernet_with_closed_units_masked(precision):
    converted = files(precision)
    store, varied = store_of(converted), 0
    for task, limit in random_requests(12):
        (slice_,) = candidates(store, converted[ASSEMBLER], store.asked(str(task)), [limit])
        network = slice_.cut(converted[SUPERNET], store.places)
        actual = Session(network, 1)({"image": images(16)})["answer"]
        expected = Session(masked(converted[SUPERNET], store, slice_), 1)({"image": images(16)})["answer"]
        varied += np.ptp(expected) > 0  # the smallest slices may give one answer to all
        assert np.abs(actual - expected).max() <= TOLERANCES[precision] * np.abs(expected).max(), task
        if precision is Quantization.NONE:
            (assembly,) = supernet().assemblies(SPACE.encode(task), [limit])
            reference = supernet().outputs({"image": images(16)}, assembly)
            assert np.abs(actual - reference).max() <= 1e-5 * np.abs(reference).max(), task
    assert varied > 8
