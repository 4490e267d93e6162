"""Packages with a factory, copied from `tests/data/` (made by `tests/data/make_factory.py`)."""

import shutil
from pathlib import Path

import numpy as np

from mistify.scenarios.quality import Quality
from mistify.scenarios.space import TaskSpace
from tests.support.paths import DATA

SPACE = TaskSpace.read(
    '{"properties": {"how many": ["has", "exactly:1", "exactly:2"], "which": ["1", "2", "3", "4"]},'
    ' "names": {"odd": ["1", "3"], "even": ["2", "4"]},'
    ' "tasks": {"two-odd": ["exactly:2", "odd"], "has-4": ["has", "4"], "one-2": ["exactly:1", "2"]}}'
)

#: A task of the space that was never trained.
UNSEEN = "exactly:1, even"

#: The best limit is neither the least nor the largest.
QUALITY = Quality(
    tasks=("exactly:2, odd", "has, 4", "exactly:1, 2"),
    limits=(0.1, 0.25, 0.5, 1.0),
    scores=((0.7, 0.8, 0.95, 0.9), (0.8, 0.85, 0.9, 0.85), (0.6, 0.7, 0.8, 0.75)),
)

#: Tasks and limits with stored answers.
ASKED = tuple((task, limit) for task in ("exactly:2, odd", UNSEEN) for limit in (0.1, 1.0))


def images(count: int) -> np.ndarray:
    return np.random.default_rng(0).random((count, 8, 8, 1), np.float32)


def make_package(directory: Path, name: str = "factory") -> Path:
    """Copy a package with a factory."""
    shutil.copytree(DATA / name, directory)
    return directory


def expected(task: str, limit: float) -> np.ndarray:
    """What the network with gates answers to 16 images."""
    with np.load(DATA / "factory_expected.npz") as arrays:
        return arrays[f"{task} {limit:g}"]
