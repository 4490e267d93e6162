"""Fixtures for the command line, and for devices that tune."""

import pytest
from typer.testing import CliRunner

from mistify_client.cli.main import app
from tests.mistify_client.tuning.conftest import address, device, scales, store

__all__ = ["address", "device", "scales", "store"]


@pytest.fixture
def mistify(monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    for name in ("MISTIFY_SERVER", "MISTIFY_DATA_ROOT"):
        monkeypatch.delenv(name, raising=False)
    return lambda *args: CliRunner().invoke(app, [str(arg) for arg in args])
