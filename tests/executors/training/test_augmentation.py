"""Augmented images are exactly those that the settings allow."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.data import Dataset
from executors.training.augmentation import augmenting, mirrored, recognises, suitable_augmentation
from mistify.config.data.dataset import Augmentation
from mistify.config.data.metric import Metric
from mistify.parsing.validation import InvalidValue

IMAGE = np.arange(2 * 6 * 5, dtype=np.float32).reshape(6, 5, 2) + 1


def network(shape=(6, 5, 2)):
    inputs = keras.Input(shape, name="image")
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(inputs)))


def changed(settings, count=400, seed=(3, 4)):
    augment = tf.function(augmenting(network(), settings))
    return augment({"image": np.stack([IMAGE] * count)}, tf.constant(seed))["image"].numpy()


def shifted(image, rows, columns):
    """Shift an image: pixel (y, x) is that at (y + rows, x + columns), or the nearest existing one."""
    y = np.clip(np.arange(6) + rows, 0, 5)
    x = np.clip(np.arange(5) + columns, 0, 4)
    return image[y][:, x]


def test_without_settings_nothing_changes():
    assert augmenting(network(), None)({"image": IMAGE}, None) == {"image": IMAGE}


def test_about_half_are_flipped():
    actual = changed(Augmentation(flip=True))
    flipped = [np.array_equal(image, IMAGE[:, ::-1]) for image in actual]
    kept = [np.array_equal(image, IMAGE) for image in actual]
    assert sum(flipped) + sum(kept) == 400
    assert 150 < sum(flipped) < 250


def test_images_are_shifted_in_all_directions():
    allowed = {shifted(IMAGE, y, x).tobytes(): (y, x) for y in range(-2, 3) for x in range(-2, 3)}
    actual = {allowed[image.tobytes()] for image in changed(Augmentation(crop=2))}
    assert actual == set(allowed.values())


def test_each_image_has_its_own_brightness():
    factors = changed(Augmentation(brightness=0.25)) / IMAGE
    each = factors.reshape(400, -1)
    np.testing.assert_allclose(each.std(axis=1), 0, atol=1e-5)
    assert (each.min(), each.max()) == pytest.approx((0.75, 1.25), abs=0.02)


def test_augmentation_is_reproducible_by_seed():
    settings = Augmentation(flip=True, crop=1, brightness=0.1)
    np.testing.assert_array_equal(changed(settings), changed(settings))
    assert not np.array_equal(changed(settings), changed(settings, seed=(3, 8)))


@pytest.mark.parametrize(("shape", "expected"), [((7,), "a model of images"), ((6, 4, 1), "a crop below 4")])
def test_inputs_that_cannot_be_augmented_are_refused(shape, expected):
    with pytest.raises(InvalidValue) as caught:
        augmenting(network(shape), Augmentation(crop=4))
    assert expected in caught.value.expected


def labelled_positions():
    """Return a network that predicts a class for each pixel."""
    inputs = keras.Input((6, 5, 2), name="image")
    return keras.Model(inputs, keras.layers.Conv2D(3, 1, activation="softmax", name="mask")(inputs))


@pytest.mark.parametrize("settings", [Augmentation(flip=True), Augmentation(crop=1)])
def test_images_with_labels_for_positions_are_not_moved(settings):
    with pytest.raises(InvalidValue, match="mask has labels per position"):
        augmenting(labelled_positions(), settings)
    augmenting(labelled_positions(), Augmentation(brightness=0.1))


def looking_at(columns):
    """Return a network for 8 x 16 images that compares the brightness of some columns with 0."""
    inputs = keras.Input((8, 16, 1), name="image")
    model = keras.Model(inputs, keras.layers.Dense(2, name="y")(keras.layers.Flatten()(inputs)))
    kernel = np.zeros((8, 16, 2))
    kernel[:, columns] = -1, 1
    model.get_layer("y").set_weights([kernel.reshape(-1, 2), np.zeros(2)])
    return model


@pytest.mark.parametrize(
    ("columns", "suitable"),
    [
        (slice(None), Augmentation(flip=True, crop=1)),
        (slice(0, 8), Augmentation(crop=1)),
        ([7, 8], Augmentation(flip=True)),
        ([0], None),
    ],
)
def test_augmentations_are_chosen_if_the_network_still_recognises_the_images(columns, suitable):
    """Images are bright or dark in these columns, and zero or of opposite brightness elsewhere."""
    classes = np.arange(200) % 2
    images = np.zeros((200, 8, 16, 1), np.float32)
    images[:, :, columns] = (2 * classes - 1)[:, None, None, None]
    if columns == [7, 8]:  # a shift replaces the centre by columns with the opposite brightness
        images[:, :, [5, 6, 9, 10]] = -3 * (2 * classes - 1)[:, None, None, None]
    if columns == [0]:
        images[:, :, 1:] = -(2 * classes - 1)[:, None, None, None]
    data = Dataset({"image": images}, {"y": classes})
    assert suitable_augmentation(looking_at(columns), data, Metric.ACCURACY) == suitable


@pytest.mark.parametrize(
    ("right", "count", "recognised"), [(1.0, 200, True), (0.52, 200, False), (1.0, 99, False)]
)
def test_augmentations_are_chosen_only_by_an_accurate_network(right, count, recognised):
    """Flipped or not, the images are bright or dark, and some are labelled so; few examples prove little."""
    classes = np.arange(count) % 2
    images = np.ones((count, 8, 16, 1), np.float32) * (2 * classes - 1)[:, None, None, None]
    wrong = np.random.default_rng(0).permutation(count)[: round((1 - right) * count)]
    classes[wrong] = 1 - classes[wrong]
    data = Dataset({"image": images}, {"y": classes})
    flips = Augmentation(flip=True)
    assert recognises(looking_at(slice(None)), data, Metric.ACCURACY, flips) == recognised


def test_regression_outputs_that_change_their_sign_are_not_recognised():
    """The output is the difference in brightness between both sides."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(200, 8, 16, 1)).astype(np.float32)
    inputs = keras.Input((8, 16, 1), name="image")
    model = keras.Model(inputs, keras.layers.Dense(1, name="y")(keras.layers.Flatten()(inputs)))
    for side, recognised in (-1, False), (1, True):
        kernel = np.concatenate([np.ones((8, 8)), np.full((8, 8), side)], axis=1)
        model.set_weights([kernel.reshape(-1, 1), np.zeros(1)])
        data = Dataset({"image": images}, {"y": model.predict(images, verbose=0) + 0.1})
        assert recognises(model, data, Metric.MSE, Augmentation(flip=True)) == recognised


def test_configured_augmentations_are_kept():
    images = np.zeros((200, 8, 16, 1), np.float32)
    images[:, :, :8] = (2 * (np.arange(200) % 2) - 1)[:, None, None, None]
    data = Dataset({"image": images}, {"y": np.arange(200) % 2})
    start = Augmentation(crop=3)
    assert suitable_augmentation(looking_at(slice(0, 8)), data, Metric.ACCURACY, start) == start


def test_mirrored_images_equal_flipped_ones():
    images = np.stack([IMAGE] * 3)
    np.testing.assert_array_equal(mirrored(network(), {"image": images})["image"], images[:, :, ::-1])


def test_no_augmentation_suits_inputs_that_are_not_images():
    inputs = keras.Input((4,), name="x")
    model = keras.Model(inputs, keras.layers.Dense(2, name="y")(inputs))
    data = Dataset({"x": np.zeros((6, 4), np.float32)}, {"y": np.arange(6) % 2})
    assert suitable_augmentation(model, data, Metric.ACCURACY) is None
