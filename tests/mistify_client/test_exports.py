"""The client's exports are imported lazily."""

import subprocess
import sys

import pytest

import mistify_client
from mistify_client import load


def test_every_exported_name_exists() -> None:
    assert {name: getattr(mistify_client, name).__name__ for name in mistify_client.__all__} == {
        name: name for name in mistify_client.__all__
    }
    assert mistify_client.load is load
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        _ = mistify_client.lod


def test_importing_the_client_does_not_import_the_libraries_behind_its_exports() -> None:
    code = "import sys, mistify_client; sys.exit('grpc' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_loading_a_package_imports_no_unnecessary_libraries(package) -> None:
    """Importing any of these takes longer than loading the package."""
    code = "import sys; from mistify_client import load; load(sys.argv[1]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(package)], capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.split())
    assert "ai_edge_litert.interpreter" in imported
    others = {"grpc", "psutil", "ai_edge_litert.schema_py_generated", "mistify_client.assembly.stitching"}
    assert not others & imported
