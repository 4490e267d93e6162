"""The benchmark `device.monitor_cost`."""

from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks.device.monitor_cost import measure, monitored
from benchmarks.harness.run import MissingDataError

_CLIENT = """
from types import SimpleNamespace
def load(package, threads):
    class Model:
        inputs = [SimpleNamespace(shape=(-1, 2), dtype="float32")]
        def __call__(self, image):
            return image
    return Model()
"""

_DAEMON = """
import signal
def main():
    signal.pause()
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return another checkout, with a client that does nothing."""
    root = tmp_path / "checkout"
    (root / "mistify_client" / "cli").mkdir(parents=True)
    (root / "mistify_client" / "__init__.py").write_text(_CLIENT)
    (root / "mistify_client" / "cli" / "__init__.py").touch()
    (root / "mistify_client" / "cli" / "main.py").write_text(_DAEMON)
    return root


def test_app_and_monitor_have_the_code_of_the_checkout(checkout: Path, tmp_path: Path) -> None:
    """The current directory has this code, which must not be used instead."""
    (tmp_path / "package").mkdir()
    with monitored(tmp_path / "package", checkout, "", tmp_path) as daemon:
        assert daemon.environ()["PYTHONPATH"] == str(checkout)
        assert daemon.is_running()
    assert not daemon.is_running()


def test_a_directory_without_the_code_is_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="is not a checkout"):
        measure(Namespace(quick=True, against=tmp_path))
