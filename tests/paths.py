"""Where the repository and the files of the tests are."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
DATA = REPOSITORY / "tests" / "data"
