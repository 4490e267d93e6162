"""Files with data."""

import numpy as np
import pytest

from tests.executors.readers.files import write_labelled


@pytest.fixture
def saved(tmp_path):
    def save(**arrays):
        np.savez(tmp_path / "data.npz", **arrays)
        return str(tmp_path / "data.npz")

    return save


@pytest.fixture
def labelled(tmp_path):
    return lambda name, targets: str(write_labelled(tmp_path / name, targets))
