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
