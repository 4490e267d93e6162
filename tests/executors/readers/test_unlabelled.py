"""Inputs without targets, as unlabelled data."""

import numpy as np
import pytest

from executors.readers.loading import load_dataset
from executors.structure.signature import Input, Signature
from mistify.errors import MistifyError
from tests.executors.readers.arrays import ONE, OPEN, SCORES, X, problems_of
from tests.executors.readers.files import FORMATS, problem_of, write_images


@pytest.mark.parametrize("also", [{}, {"y": np.full(6, 99)}, {"scores": np.array(["?"] * 6)}])
def test_targets_of_unlabelled_inputs_are_ignored(saved, also):
    data = load_dataset(saved(x=X, **also), ONE, labelled=False)
    np.testing.assert_array_equal(data.inputs["image"], X)
    assert data.targets == {}


@pytest.mark.parametrize("suffix", FORMATS)
def test_unlabelled_inputs_are_read_in_every_format(labelled, suffix):
    path = labelled(f"data.{suffix}", [0.5, 1.5, 2.5])
    with_targets = load_dataset(path, OPEN)
    without = load_dataset(path, OPEN, labelled=False)
    np.testing.assert_array_equal(without.inputs["figures"], with_targets.inputs["figures"])
    assert without.targets == {}


@pytest.mark.parametrize("header", ["b,a,c", "b,a,c,y"])
def test_columns_of_unlabelled_inputs_are_in_the_order_of_the_training_data(tmp_path, header):
    (tmp_path / "train.csv").write_text("a,b,c,y\n1,2,3,0.5\n")
    (tmp_path / "more.csv").write_text(f"{header}\n{','.join('2132'[: header.count(',') + 1])}\n")
    train, more = (str(tmp_path / name) for name in ("train.csv", "more.csv"))
    data = load_dataset(more, OPEN, train, labelled=False)
    assert data.inputs["figures"].tolist() == [[1, 2, 3]]
    alone = load_dataset(more, OPEN, labelled=False)
    assert alone.inputs["figures"].tolist() == [[2, 1, 3]]


def test_unlabelled_images_may_be_in_folders_of_any_names(tmp_path):
    image = Signature((Input("image", (6, 5, 3), "float32"),), (SCORES,))
    names = ["2.png", "b/1.png", "b/3.png"]
    pictures = {name: np.full((6, 5, 3), number, np.uint8) for number, name in enumerate(names)}
    folder = write_images(tmp_path / "photos", pictures)
    data = load_dataset(str(folder), image, labelled=False)
    assert data.inputs["image"][:, 0, 0, 0].tolist() == [0, 1, 2]
    flat = write_images(tmp_path / "flat", {"1.png": pictures["2.png"]})
    reported = problem_of(flat, image)
    assert "images without classes" in reported
    assert '"unlabelled"' in reported


def test_unlabelled_inputs_are_checked_like_others(saved):
    with pytest.raises(MistifyError, match="cannot be used") as caught:
        load_dataset(saved(x=np.full((3, 2, 2), np.nan)), ONE, labelled=False)
    assert "NaN or infinity in x[0]" in str(caught.value.problems[0])
    with pytest.raises(MistifyError, match="cannot be used") as caught:
        load_dataset(saved(pixels=X), ONE, labelled=False)
    assert "no array image, but pixels; expected image (or x)" in str(caught.value.problems[0])
    (problem,) = problems_of(saved(x=X))
    assert 'give only inputs as "unlabelled"' in problem
