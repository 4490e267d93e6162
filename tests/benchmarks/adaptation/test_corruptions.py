"""The corruptions of `adaptation.test_time`: what they do to pixels, and that severities differ."""

import numpy as np
import pytest

from benchmarks.adaptation.corruptions import corruptions

#: Random patches of 4 x 4 pixels.
IMAGES = np.kron(np.random.default_rng(0).uniform(0, 255, (20, 4, 4, 3)), np.ones((1, 4, 4, 1))).astype("f")
CORRUPTIONS = corruptions(255.0)


def corrupted(name, seed=0):
    return CORRUPTIONS[name](IMAGES, np.random.default_rng(seed))


def test_there_are_four_kinds_in_three_severities():
    kinds = [name.rpartition(" ")[::2] for name in CORRUPTIONS]
    assert [severity for _, severity in kinds] == ["1", "2", "3"] * 4
    assert len({kind for kind, _ in kinds}) == 4


@pytest.mark.parametrize("kind", ["noise", "blur", "contrast", "brightness"])
def test_severities_are_farther_and_farther_from_the_images(kind):
    distances = [np.abs(corrupted(f"{kind} {severity}") - IMAGES).mean() for severity in (1, 2, 3)]
    assert 0 < distances[0] < 0.9 * distances[1] < 0.9**2 * distances[2]


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_pixels_stay_pixels(name):
    made = corrupted(name)
    assert made.dtype == np.float32
    assert made.shape == IMAGES.shape
    assert 0 <= made.min() <= made.max() <= 255
    np.testing.assert_array_equal(made, corrupted(name))


def test_contrast_is_a_share_of_the_distance_to_the_mean_of_each_image():
    made = corrupted("contrast 2")
    np.testing.assert_allclose(made.mean((1, 2, 3)), IMAGES.mean((1, 2, 3)), rtol=1e-4)
    np.testing.assert_allclose(made.std((1, 2, 3)), 0.3 * IMAGES.std((1, 2, 3)), rtol=1e-4)


def test_blur_keeps_colours_apart():
    """A single red pixel spreads in its channel alone."""
    image = np.zeros((1, 9, 9, 3), np.float32)
    image[0, 4, 4, 0] = 255
    made = CORRUPTIONS["blur 3"](image, np.random.default_rng(0))
    assert made[..., 1:].max() == 0
    assert made[0, 4, 4, 0] == made.max() < 255 / 5
    assert made.sum() == pytest.approx(255, rel=0.05)


def test_values_are_shares_of_the_largest_pixel():
    small = corruptions(1.0)["noise 3"](IMAGES / 255, np.random.default_rng(0))
    np.testing.assert_allclose(255 * small, corrupted("noise 3"), atol=1e-3)
