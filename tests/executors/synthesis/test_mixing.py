import numpy as np
import pytest

from executors.structure.signature import Input, Signature
from executors.synthesis import mixing
from executors.synthesis.mixing import with_mixed

IMAGE = Input("image", (12, 8, 1), "float32")


def images(count=20):
    """Return images with one constant value each, so that every pixel shows its origin."""
    return {"image": np.full((count, 12, 8, 1), 1.0, np.float32) * np.arange(count)[:, None, None, None]}


def test_each_example_contains_a_box_from_another_one():
    given = images()
    made = with_mixed(given, Signature((IMAGE,), ()), np.random.default_rng(0))["image"]
    assert len(made) == (1 + mixing._TIMES) * 20
    np.testing.assert_array_equal(made[:20], given["image"])
    sizes = []
    for place, image in enumerate(made[20:, :, :, 0]):
        foreign = image != place % 20
        if not foreign.any():  # a box from itself
            continue
        assert len(np.unique(image[foreign])) == 1
        rows, columns = foreign.any(axis=1), foreign.any(axis=0)
        assert foreign.sum() == rows.sum() * columns.sum()
        assert np.ptp(np.flatnonzero(rows)) + 1 == rows.sum()
        sizes.append((rows.sum(), columns.sum()))
    assert len(sizes) > 100
    assert np.min(sizes, axis=0).tolist() == [3, 2]
    assert np.max(sizes, axis=0).tolist() == [9, 6]


def test_boxes_are_moved_to_other_positions():
    ramp = np.arange(12 * 8, dtype=np.float32).reshape(1, 12, 8, 1)
    made = with_mixed({"image": ramp}, Signature((IMAGE,), ()), np.random.default_rng(0))["image"]
    assert sum((image != ramp[0]).any() for image in made) > 3


def test_inputs_without_positions_are_not_mixed():
    signature = Signature((IMAGE, Input("tokens", (5,), "int32", 9), Input("age", (3,), "float32")), ())
    rng = np.random.default_rng(0)
    given = {**images(), "tokens": rng.integers(0, 9, (20, 5)), "age": rng.normal(size=(20, 3))}
    made = with_mixed(given, signature, rng)
    for name in ("tokens", "age"):
        np.testing.assert_array_equal(made[name], np.tile(given[name], (1 + mixing._TIMES, 1)))
    assert not np.array_equal(made["image"][20:40], given["image"])
    alone = Signature((signature.inputs[2],), ())
    assert len(with_mixed({"age": given["age"]}, alone, rng)["age"]) == 20


@pytest.mark.parametrize(("room", "times"), [(0.5, 0), (3.2, 3)])
def test_the_number_of_examples_is_limited_by_memory(monkeypatch, room, times):
    given = images()
    monkeypatch.setattr(mixing, "_BYTES", int(room * given["image"].nbytes))
    made = with_mixed(given, Signature((IMAGE,), ()), np.random.default_rng(0))
    assert len(made["image"]) == (1 + times) * 20
