"""Packages of digits that can be adapted, copied from `tests/data/` (made by `make_adaptable.py`)."""

import shutil
from pathlib import Path

import numpy as np

from mistify.package.manifest import Manifest
from mistify_client.adapting.loop import AdaptationLoop
from mistify_client.runtime.samples import RATE, InputSamples
from mistify_client.runtime.versions import state_directory
from tests.support.paths import DATA

#: Contrast and brightness of a dirty lens.
DIRTY = (0.2, 5.0)


def make_package(directory: Path, name: str = "adaptable") -> Path:
    """Copy a package."""
    shutil.copytree(DATA / name, directory)
    return directory


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return images [n, 8, 8, 1] of values up to 16, and their classes."""
    with np.load(DATA / "adaptable_digits.npz") as file:
        return file["image"].astype(np.float32), file["digit"]


def dirty(images: np.ndarray) -> np.ndarray:
    """Return images through a dirty lens."""
    contrast, brightness = DIRTY
    return np.round(images * contrast + brightness).astype(np.float32)


class Camera:
    """An app that shows a package images, and a loop that adapts it; time passes with the images.

    Attributes:
        events: The events of the loop.
        now: The time in seconds.
    """

    def __init__(self, package: Path) -> None:
        self.package, self.now = package, 0.0
        self.events: list[str] = []
        self.loop = AdaptationLoop(
            package, lambda event, reason, figures: self.events.append(event), lambda: self.now
        )
        self.loop.step()
        inputs = Manifest.load(package).inputs
        self._samples = InputSamples(state_directory(package), inputs, lambda: self.now)

    def shows(self, images: np.ndarray, seconds: float = 1.01 / RATE) -> None:
        """Show images one after the other; the loop looks at them from time to time."""
        for at in range(0, len(images), 32):
            for image in images[at : at + 32]:
                self._samples.offer({"image": image[None]})
                self.now += seconds
            self.loop.step()


def shuffled(images: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Return a stream of some images in random order."""
    return images[np.random.default_rng(seed).integers(0, len(images), count)]
