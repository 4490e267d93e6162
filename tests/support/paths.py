"""Paths of the repository and of the data of its tests."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY / "tests" / "data"
