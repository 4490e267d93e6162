"""Data and settings of devices in tests, independent of the server."""

import numpy as np

from mistify_client.tuning import Examples, TrainingSettings

#: Settings that converge quickly on the small test networks.
SETTINGS = TrainingSettings(learning_rate=0.015, patience=12, slowdowns=0, most_passes=25)


def examples(seed: int, count: int = 400) -> Examples:
    """Return random images; their classes depend on the brightness of each half."""
    images = np.random.default_rng(seed).uniform(size=(count, 4, 4, 1)).astype(np.float32)
    left, right = images[:, :, :2].mean((1, 2, 3)), images[:, :, 2:].mean((1, 2, 3))
    classes = np.where(np.abs(left - right) < 0.05, 2, left < right)
    return Examples({"image": images}, {"scores": classes.astype(np.int64)})
