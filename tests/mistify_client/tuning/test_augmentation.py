"""Changed images, and labels that are mixed as the pixels are."""

import numpy as np
import pytest

from mistify_client.examples import Examples
from mistify_client.tuning.augmentation import Augmentation, changed_inputs

COUNT, CLASSES = 24, 3
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, 8, 10, 3), np.uint8)
LABELS = np.arange(COUNT) % CLASSES

#: Each image has the one-hot code of its label in each pixel, so that a mixed one has the mixed label.
CODED = np.broadcast_to(np.eye(CLASSES)[LABELS][:, None, None], (COUNT, 48, 48, CLASSES)).astype(np.float32)


def batches(images, labels=LABELS, teacher=None, kd_weight=1.0, count=30, **changes):
    """Return batches with different random changes."""
    examples = Examples({"image": images, "age": np.arange(COUNT)}, {"scores": labels})
    taught = None if teacher is None else {"scores": teacher}
    augmentation = Augmentation({"scores": CLASSES}, **changes)
    return [
        augmentation.augmented(examples, taught, kd_weight, np.random.default_rng(seed))
        for seed in range(count)
    ]


def loss_targets(batch):
    """Return the sum of all targets of a step, each with its weight [examples, classes]."""
    return np.eye(CLASSES)[batch.examples.targets["scores"]] + batch.kd_weight * batch.teacher["scores"]


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("shift", [(0, 0), (2, 0), (-3, 1), (4, -4)])
def test_an_image_is_shifted_and_flipped(flip, shift):
    down, right = shift
    padded = np.pad(IMAGES[0], ((4, 4), (4, 4), (0, 0)), mode="reflect")
    expected = padded[4 - down : 12 - down, 4 - right : 14 - right]
    expected = expected[:, ::-1] if flip else expected
    examples = Examples({"image": IMAGES[:1], "age": np.array([7])}, {"scores": LABELS[:1]})
    actual = changed_inputs(examples, np.array([flip]), np.array([shift]))
    assert actual["image"].dtype == np.uint8
    assert np.array_equal(actual["image"][0], expected)
    assert actual["age"].tolist() == [7]


def test_labels_are_mixed_as_pixels_are():
    for batch in batches(CODED):
        pixels = batch.examples.inputs["image"]
        assert loss_targets(batch) / 2 == pytest.approx(pixels.mean((1, 2)), abs=0.04)
        assert batch.examples.targets["scores"].tolist() == LABELS.tolist()
        assert batch.examples.inputs["age"].tolist() == list(range(COUNT))


def test_some_batches_are_blended_some_have_parts_pasted_in_and_half_are_unmixed():
    ways = []
    for batch in batches(CODED[:, :8, :8], count=200):
        pixels = batch.examples.inputs["image"].max(axis=3)
        pure = pixels.min() == 1
        one_label = (batch.examples.inputs["image"].mean((1, 2)).max(axis=1) == 1).all()
        ways.append("unmixed" if one_label else "pasted" if pure else "blended")
    shares = [ways.count(way) / 200 for way in ("unmixed", "pasted", "blended")]
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.1)


def test_only_the_requested_changes_are_made():
    for changes, expected in (({}, {1}), ({"flip": True}, {1, 2}), ({"shift": 1}, {1, 3})):
        seen = set()
        for batch in batches(IMAGES, labels=np.full(COUNT, -1), **changes):  # unknown labels are not mixed
            for image, original in zip(batch.examples.inputs["image"], IMAGES, strict=True):
                same, mirrored = np.array_equal(image, original), np.array_equal(image, original[:, ::-1])
                seen.add(1 if same else 2 if mirrored else 3)
        assert seen == expected


def test_images_with_unknown_labels_are_not_mixed_in():
    """Only the images of the class 2, which is unknown, have anything in the last channel."""
    labels = np.where(LABELS == 2, -1, LABELS)
    for batch in batches(CODED, labels):
        image = batch.examples.inputs["image"]
        assert not image[labels >= 0][..., 2].any()
        assert (image[labels < 0][..., 2] == 1).all()


def test_a_teachers_targets_are_mixed_as_labels_are():
    """It predicts the labels of its own, the reverse order of classes."""
    plain, taught = (
        batches(CODED, teacher=teacher, kd_weight=0.75) for teacher in (None, np.eye(CLASSES)[2 - LABELS])
    )
    for alone, both in zip(plain, taught, strict=True):
        labels = loss_targets(alone)
        assert loss_targets(both) == pytest.approx(labels + 0.75 * labels[:, ::-1], abs=1e-5)
        assert both.teacher["scores"].sum(axis=1) == pytest.approx(1)
