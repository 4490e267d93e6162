"""The server of a single command."""

import subprocess
import sys
from pathlib import Path

import pytest

from mistify_server import embedded

_LATER = ("grpc", "numpy", "scipy", "sqlalchemy", "fastapi", "structlog", "mistify_server.server")


def test_a_worker_is_started_before_the_rest_of_the_server_is_imported() -> None:
    script = (
        f"import sys, mistify_server.embedded; print([name for name in {_LATER!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_all_commands_of_a_user_share_inspections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert embedded.shared_inspections() == tmp_path / "cache" / "mistify" / "inspections"
    assert embedded.shared_inspections().is_dir()


def test_without_a_cache_directory_inspections_stay_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("no directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert embedded.shared_inspections() is None
