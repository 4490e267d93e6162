"""Data files on the device: suitable ones, and errors for unsuitable ones."""

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify_client.tuning.examples import read_examples, split
from mistify_client.tuning.trainer import load_trainer
from tests.mistify_client.tuning.devices import examples


@pytest.fixture
def read(data, tmp_path):
    manifest = Manifest.load(data / "trainable")

    def read(**arrays):
        np.savez(tmp_path / "data.npz", **arrays)
        return read_examples(tmp_path / "data.npz", manifest, manifest.training)

    return read


IMAGES = np.linspace(0, 1, 96, dtype=np.float32).reshape(6, 4, 4, 1)
CLASSES = np.array([0, 1, 2, 0, 1, -1])


@pytest.mark.parametrize("names", [("image", "scores"), ("x", "y"), ("image", "y")])
def test_arrays_are_found_by_name_or_as_x_and_y(read, names):
    actual = read(**dict(zip(names, (IMAGES, CLASSES), strict=True)))
    np.testing.assert_array_equal(actual.inputs["image"], IMAGES)
    np.testing.assert_array_equal(actual.targets["scores"], CLASSES)


@pytest.mark.parametrize(
    ("arrays", "reported"),
    [
        ({"x": IMAGES}, "scores: got nothing"),
        ({"y": CLASSES}, "image: got nothing"),
        ({"x": IMAGES[:, :3], "y": CLASSES}, "shape"),
        ({"x": IMAGES, "y": CLASSES[:5]}, "5 examples; expected 6"),
        ({"x": IMAGES, "y": CLASSES + 1}, "classes from 0 to 3; expected 0 to 2"),
        ({"x": IMAGES, "y": CLASSES - 1}, "classes from -2"),
        ({"x": IMAGES * np.float32("nan"), "y": CLASSES}, "NaN"),
        ({"x": IMAGES, "y": np.int64(1)}, "scores: got a single value; expected an array"),
        (
            {"x": IMAGES, "y": np.eye(3, dtype=np.int64)[CLASSES]},
            r"the shape \[6, 3\]; expected \[6\]; .*argmax",
        ),
        ({"x": IMAGES, "y": CLASSES.astype(np.float32)}, "scores: got classes as float32; expected integers"),
        ({"x": IMAGES, "y": CLASSES.astype(str)}, "scores: got classes as <U"),
    ],
)
def test_unsuitable_arrays_are_reported(read, arrays, reported):
    with pytest.raises(MistifyError, match=reported) as caught:
        read(**arrays)
    assert caught.value.code is ErrorCode.INVALID_DATASET


@pytest.fixture
def trainer(data):
    """Return a trainer for a network with one output of each kind, named after the kind."""
    return load_trainer(data / "trainable_kinds", 1)


ANSWERS = CLASSES % 2
BRIGHTNESS = IMAGES.mean((1, 2, 3))
LABELS = {
    "softmax": CLASSES,
    "logits": CLASSES,
    "sigmoid": ANSWERS[:, None],
    "logit": ANSWERS[:, None],
    "figures": BRIGHTNESS[:, None],
}


@pytest.mark.parametrize(
    "written",
    [
        {name: labels.ravel() for name, labels in LABELS.items()},
        {name: labels.reshape(6, 1) for name, labels in LABELS.items()},
        {"sigmoid": ANSWERS.astype(np.float32), "logit": ANSWERS.astype(np.float64)[:, None]},
        {"sigmoid": ANSWERS.astype(bool), "logit": ANSWERS.astype(np.uint8)},
        {"figures": BRIGHTNESS.astype(np.float64)},
    ],
)
def test_labels_read_from_files_can_be_trained_on(trainer, tmp_path, written):
    np.savez(tmp_path / "data.npz", x=IMAGES, **LABELS | written)
    read = read_examples(tmp_path / "data.npz", trainer.manifest, trainer.training)
    assert trainer.evaluate(read.inputs, read.targets) == trainer.evaluate(IMAGES, LABELS)


def test_fractions_are_not_valid_binary_labels(trainer, tmp_path):
    answers = {"sigmoid": ANSWERS + 0.5 * (ANSWERS == 0), "logit": np.full(6, 0.25, np.float32)}
    np.savez(tmp_path / "data.npz", x=IMAGES, **LABELS | answers)
    with pytest.raises(MistifyError, match="got fractions; expected 0 or 1, or -1") as caught:
        read_examples(tmp_path / "data.npz", trainer.manifest, trainer.training)
    assert caught.value.code is ErrorCode.INVALID_DATASET
    places = [f"{tmp_path / 'data.npz'}: {name}" for name in ("sigmoid", "logit")]
    assert [problem.place for problem in caught.value.problems] == places


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04nonsense", b"[1, 2]"])
def test_files_without_arrays_are_reported(data, tmp_path, content):
    manifest = Manifest.load(data / "trainable")
    (tmp_path / "data.npz").write_bytes(content)
    with pytest.raises(MistifyError, match=r"an \.npz file"):
        read_examples(tmp_path / "data.npz", manifest, manifest.training)


def test_a_single_array_and_a_missing_file_are_reported(data, tmp_path):
    manifest = Manifest.load(data / "trainable")
    np.save(tmp_path / "data.npy", IMAGES)
    for name, reported in (("data.npy", "a single array without a name"), ("none.npz", "no such file")):
        with pytest.raises(MistifyError, match=rf"{name}: got {reported}; expected an \.npz file"):
            read_examples(tmp_path / name, manifest, manifest.training)


def test_classes_may_be_integers_of_any_kind(read):
    for kind in (*np.typecodes["AllInteger"], "?"):
        classes = np.array([0, 1, 1, 0, 1, 0], kind)
        np.testing.assert_array_equal(read(x=IMAGES, y=classes).targets["scores"], classes)


def test_damage_anywhere_in_a_file_is_reported(data, tmp_path):
    manifest, path = Manifest.load(data / "trainable"), tmp_path / "data.npz"
    np.savez_compressed(path, x=IMAGES, y=CLASSES)
    whole = path.read_bytes()
    refused = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            read = read_examples(path, manifest, manifest.training)
        except MistifyError:
            refused += 1
        else:  # a byte that does not affect the examples, such as part of a time stamp
            np.testing.assert_array_equal(read.inputs["image"], IMAGES)
            np.testing.assert_array_equal(read.targets["scores"], CLASSES)
    assert refused > len(whole) // 2


def test_examples_are_split_deterministically_and_completely():
    some = examples(1, 50)
    actual = split(some, 0.2, 8)
    assert len(actual.validation) == 10
    assert sorted([*actual.training, *actual.validation]) == list(range(50))
    np.testing.assert_array_equal(split(some, 0.2, 8).validation, actual.validation)
    np.testing.assert_array_equal(actual.held_out.inputs["image"], some.inputs["image"][actual.validation])


def test_too_few_examples_are_reported():
    with pytest.raises(MistifyError, match="8 for a step") as caught:
        split(examples(1, 8), 0.1, 8)
    assert caught.value.code is ErrorCode.INVALID_DATASET


def test_different_examples_have_different_digests():
    some = examples(1, 10)
    assert some.digest == examples(1, 10).digest
    changed = examples(1, 10)
    changed.targets["scores"][3] += 1
    assert len({some.digest, changed.digest, examples(1, 9).digest, examples(2, 10).digest}) == 4
