"""What the client offers is imported when it is asked for."""

import subprocess
import sys

import pytest

import mistify_client
from mistify_client.runtime.model import load


def test_every_name_that_the_client_offers_is_there() -> None:
    assert {name: getattr(mistify_client, name).__name__ for name in mistify_client.__all__} == {
        name: name for name in mistify_client.__all__
    }
    assert mistify_client.load is load
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        _ = mistify_client.lod


def test_the_client_is_imported_without_the_libraries_behind_its_names() -> None:
    code = "import sys, mistify_client; sys.exit('grpc' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_loading_a_package_imports_nothing_that_it_does_not_need(package) -> None:
    """Each of these takes longer to import than the package to load."""
    code = "import sys; from mistify_client import load; load(sys.argv[1]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(package)], capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.split())
    assert "ai_edge_litert.interpreter" in imported
    others = {"grpc", "psutil", "ai_edge_litert.schema_py_generated", "mistify_client.assembly.stitching"}
    assert not others & imported
