"""Data with channels first, where a config declares that layout."""

import numpy as np
import pytest

from executors.readers.loading import load_dataset
from executors.structure.signature import Activation, Input, Output, Signature, with_channels_first
from tests.executors.readers.files import problem_of, write_jsonl, write_records

CLASSES = np.array([0, 1, 2, 0, 1, 2])

COLOURS = np.arange(6 * 2 * 5 * 3, dtype=np.float32).reshape(6, 2, 5, 3)
COLOURED = Signature((Input("image", (2, 5, 3), "float32"),), (Output("scores", (3,), Activation.SOFTMAX),))


def written_image(path, images):
    """Write images and classes in the format that the suffix of a path names."""
    if path.suffix == ".npz":
        np.savez(path, image=images, scores=CLASSES)
        return path
    rows = [{"image": image, "scores": int(label)} for image, label in zip(images, CLASSES, strict=True)]
    if path.suffix == ".tfrecord":
        return write_records(path, rows)
    return write_jsonl(path, [{**row, "image": row["image"].tolist()} for row in rows])


@pytest.mark.parametrize("suffix", ["npz", "jsonl", "tfrecord"])
def test_images_with_channels_first_are_read_where_that_is_declared(tmp_path, suffix):
    path = str(written_image(tmp_path / f"first.{suffix}", np.ascontiguousarray(np.moveaxis(COLOURS, -1, 1))))
    data = load_dataset(path, with_channels_first(COLOURED, ["image"]))
    np.testing.assert_array_equal(data.inputs["image"], COLOURS)
    if suffix != "tfrecord":  # whose numbers have no shape
        assert "shape" in problem_of(path, COLOURED)


@pytest.mark.parametrize("suffix", ["npz", "jsonl"])
def test_channels_may_be_last_as_well(tmp_path, suffix):
    path = str(written_image(tmp_path / f"last.{suffix}", COLOURS))
    data = load_dataset(path, with_channels_first(COLOURED, ["image"]))
    np.testing.assert_array_equal(data.inputs["image"], COLOURS)


@pytest.mark.parametrize("suffix", ["npz", "jsonl"])
def test_errors_name_both_layouts(tmp_path, suffix):
    path = str(written_image(tmp_path / f"other.{suffix}", COLOURS[:, :1]))
    problem = problem_of(path, with_channels_first(COLOURED, ["image"]))
    assert all(sizes in problem for sizes in ("3, 2, 5]", "2, 5, 3]"))


@pytest.mark.parametrize(("images", "moved"), [(np.moveaxis(COLOURS, -1, 1), True), (COLOURS[:, :1], False)])
def test_channels_that_come_first_are_to_be_moved_not_reshaped(tmp_path, images, moved):
    problem = problem_of(str(written_image(tmp_path / "images.npz", images)), COLOURED)
    assert ("numpy.moveaxis(image, 1, -1)" in problem) == moved
    assert ("?layout=channels_first" in problem) == moved
    assert ("reshape image" in problem) != moved
