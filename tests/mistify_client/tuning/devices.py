"""Data and settings of devices in tests, without anything of the server."""

import numpy as np

from mistify_client.tuning import Examples, TrainingSettings

#: Quick to converge on the small networks of the tests.
SETTINGS = TrainingSettings(learning_rate=0.015, patience=12, slowdowns=0, most_passes=25)


def examples(seed: int, count: int = 400) -> Examples:
    """Random images; their classes follow from how bright each half is."""
    images = np.random.default_rng(seed).uniform(size=(count, 4, 4, 1)).astype(np.float32)
    left, right = images[:, :, :2].mean((1, 2, 3)), images[:, :, 2:].mean((1, 2, 3))
    classes = np.where(np.abs(left - right) < 0.05, 2, left < right)
    return Examples({"image": images}, {"scores": classes.astype(np.int64)})
