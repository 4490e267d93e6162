"""The supernet: its slices, and what is kept of it."""

import numpy as np
import pytest

from executors.algorithms.nnfactory.assembler import AssemblerShape
from executors.algorithms.nnfactory.supernet import Assembly, Supernet
from executors.structure import analyse
from mistify.config.task import TaskConfig
from mistify.parsing.validation import InvalidValue
from mistify.scenarios.quality import Quality
from tests.executors.algorithms.nnfactory.conftest import NETWORKS, SPACE, images, made, residual

TASK = SPACE.encode(SPACE.parse("any, top"))
QUALITY = Quality(tasks=("a", "b"), limits=(0.1, 0.3, 1.0), scores=((0.5, 0.9, 0.7), (0.7, 1.0, 0.9)))


def supernet_of(make, modulate=True):
    """A supernet whose assembler opens some units, scaled and shifted."""
    structure = made(make)
    supernet = Supernet(structure, AssemblerShape(SPACE.size, 16, 2, modulate), SPACE, QUALITY)
    rng = np.random.default_rng(0)
    for weight in supernet.assembler.trainable_weights:
        weight.assign(weight + rng.normal(0, 0.3, weight.shape))
    return supernet


@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("modulate", [False, True])
def test_a_slice_is_the_masked_network(make, modulate):
    supernet = supernet_of(make, modulate)
    for assembly in supernet.assemblies(TASK, [0.1, 0.4, 1.0]):
        slice_of_it = supernet.slice(assembly)
        masked, cut = supernet.outputs({"image": images(6)}, assembly), np.asarray(slice_of_it(images(6)))
        np.testing.assert_allclose(cut, masked, atol=1e-6 * np.abs(masked).max())
        widths = analyse(slice_of_it).widths
        assert all(widths[name] == kept.sum() for name, kept in assembly.open.items() if name in widths)


def test_limits_are_kept_and_tasks_have_gates_of_their_own():
    supernet = supernet_of(residual)
    limits = [0.1, 0.3, 0.5]
    for limit, assembly in zip(limits, supernet.assemblies(TASK, limits), strict=True):
        opened = np.concatenate([*assembly.open.values()])
        assert opened.mean() <= limit
        assert (assembly.values["gates"] == opened).all()
    other, *_ = supernet.assemblies(SPACE.encode(SPACE.parse("all, d")), limits)
    assert any((other.open[name] != assembly.open[name]).any() for name in other.open)


def test_the_network_has_the_trained_weights_and_no_gates():
    """All units open, neither scaled nor shifted."""
    supernet = supernet_of(residual)
    kernel = supernet.gated.get_layer("inner").kernel
    kernel.assign(kernel + 1)
    np.testing.assert_array_equal(supernet.network.get_layer("inner").kernel, kernel)
    assert [tensor.name for tensor in supernet.network.inputs] == ["image"]
    values = {kind: np.full(40, kind != "shifts", np.float32) for kind in ("gates", "scales", "shifts")}
    expected = supernet.outputs({"image": images(3)}, Assembly({}, values))
    np.testing.assert_allclose(supernet.network(images(3)), expected, atol=1e-6)


def test_what_is_saved_is_the_same_when_loaded():
    supernet = supernet_of(residual)
    loaded = Supernet.loaded(supernet.saved(), made(residual))
    for before, after in zip(supernet.model.weights, loaded.model.weights, strict=True):
        np.testing.assert_array_equal(before, after)
    assert (loaded.quality, loaded.space, loaded.groups) == (QUALITY, SPACE, supernet.groups)
    assert loaded.limits == (0.1, 0.3, 1.0)


def test_a_task_is_encoded_as_a_user_writes_it():
    supernet = supernet_of(residual)
    assert supernet.encoded(TaskConfig(properties=("top", "any"))).tolist() == TASK.tolist()
    names = ("a, b", "c", "d", "e", "e", "f")
    of_classes = Supernet(made(residual), AssemblerShape(6, 4, 1, True), SPACE, classes=names)
    assert of_classes.encoded(TaskConfig(classes=("4", "a, b"))).tolist() == [1, 0, 0, 0, 1, 0]
    with pytest.raises(InvalidValue, match="expected one of"):
        of_classes.encoded(TaskConfig(classes=("c", "x")))


def test_quality_between_two_limits_is_between_theirs():
    assert [QUALITY.expected(limit) for limit in QUALITY.limits] == pytest.approx([0.6, 0.95, 0.8])
    assert QUALITY.expected(np.sqrt(0.1 * 0.3)) == pytest.approx((0.6 + 0.95) / 2)
    assert QUALITY.expected(0.01) == pytest.approx(0.6)
