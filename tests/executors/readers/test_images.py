"""Image folders: which files are read, and how skipped files are reported."""

import numpy as np
import pytest

from executors.readers.loading import load_dataset
from executors.structure.signature import Activation, Input, Output
from tests.executors.readers.files import problem_of, signature, write_images, write_records

PETS = signature([Input("image", (6, 5, 3), "float32")], [Output("pet", (2,), Activation.SOFTMAX)])


def images(*names):
    return {name: np.full((6, 5, 3), 10 * number, np.uint8) for number, name in enumerate(names)}


def levels(data):
    return data.inputs["image"][:, 0, 0, 0].tolist()


def test_images_in_nested_folders_have_the_class_of_the_outer_folder(tmp_path):
    """The same holds for `keras.utils.image_dataset_from_directory`."""
    names = ("cat/1.PNG", "cat/2024/may/2.tif", "cat/z.bmp", "dog/a.webp", "dog/b/c.png")
    root = write_images(tmp_path / "pets", images(*names))
    write_images(root, {"dog/d.jfif": np.full((6, 5, 3), 50, np.uint8)})
    data = load_dataset(str(root), PETS)
    np.testing.assert_allclose(levels(data), [0, 10, 20, 30, 40, 50], atol=1)
    assert data.targets["pet"].tolist() == [0, 0, 0, 1, 1, 1]
    assert data.left_out == ""
    unlabelled = load_dataset(str(root), PETS, labelled=False)
    np.testing.assert_array_equal(unlabelled.inputs["image"], data.inputs["image"])


def test_the_data_say_that_they_were_images(tmp_path):
    root = write_images(tmp_path / "pets", images("cat/1.png", "dog/1.png"))
    assert load_dataset(str(root), PETS).origins == {"image": "image"}
    data = load_dataset(str(root), PETS, labelled=False)
    assert data.sample(1).origins == {"image": "image"}


def test_skipped_files_are_counted_by_kind_and_class(tmp_path):
    root = write_images(tmp_path / "pets", images("cat/1.png", "dog/1.png", "stray.png"))
    for name in ("cat/1.xml", "cat/2.xml", "cat/3.heic", "dog/old/7", "dog/.DS_Store", ".git/config"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
    data = load_dataset(str(root), PETS)
    expected = "2 .xml and 1 .heic in cat; 1 without a suffix in dog"
    assert data.left_out == f"{expected}; 1 .png in the folder itself"
    assert data.sample(1).left_out == data.left_out
    assert load_dataset(str(root), PETS, labelled=False).left_out == expected


def test_other_files_next_to_shards_are_counted(tmp_path):
    figures = signature([Input("x", (3,), "float32")], PETS.outputs)
    write_records(tmp_path / "a.tfrecord", [{"x": np.ones(3), "y": number} for number in (0, 1)])
    (tmp_path / "info.json").touch()
    assert load_dataset(str(tmp_path), figures).left_out == "1 .json"
    assert load_dataset(str(tmp_path / "a.tfrecord"), figures).left_out == ""


def test_a_class_without_images_among_its_files_is_refused(tmp_path):
    root = write_images(tmp_path / "pets", images("cat/1.png", "dog/1.png"))
    (root / "dog" / "1.png").rename(root / "dog" / "1.heic")
    reported = problem_of(root, PETS)
    assert "1 .heic in dog, and no images; expected images: AVIF, BMP, GIF" in reported
    assert reported.endswith("convert them, or remove the directory")


def test_symbolic_links_to_directories_are_refused(tmp_path):
    root = write_images(tmp_path / "pets", images("cat/1.png", "dog/1.png"))
    (root / "dog" / "again").symlink_to(root / "cat")
    assert "dog/again, a link that leads to a directory; expected files; copy" in problem_of(root, PETS)
    (root / "dog" / "again").unlink()
    (root / "dog" / "away").symlink_to(tmp_path)
    assert "dog/away, a link that leads out of the folder" in problem_of(root, PETS)


@pytest.mark.parametrize("shape", [(6, 5), (3, 6, 5), (6, 5, 2), (6, 5, 3, 1)])
def test_models_without_image_inputs_are_refused(tmp_path, shape):
    root = write_images(tmp_path / "pets", images("cat/1.png", "dog/1.png"))
    other = signature([Input("image", shape, "float32")], PETS.outputs)
    assert "an image folder; expected data for this model's inputs" in problem_of(root, other)
