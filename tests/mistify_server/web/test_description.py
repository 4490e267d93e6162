"""The server answers as its OpenAPI description says, whatever it is asked (schemathesis)."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import web_server

pytestmark = [pytest.mark.web, pytest.mark.timeout(900)]

#: Of each route and phase; there are more than 1,000 cases in all.
EXAMPLES = 100
CASES = 1_000


def test_nothing_is_answered_that_is_not_described(tmp_path: Path) -> None:
    """Streams of events have no end. That configs are refused for their content no schema can say."""
    with web_server(tmp_path / "store") as url:
        options = [
            *("--max-examples", str(EXAMPLES), "--generation-deterministic"),
            *("--exclude-path-regex", "events$", "--exclude-checks", "positive_data_acceptance"),
            *("--request-timeout", "60", "--no-color"),
        ]
        run = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", "run", f"{url}openapi.json", *options],
            check=False,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    assert run.returncode == 0, run.stdout
    found = re.search(r"([\d,]+) generated", run.stdout)
    assert found is not None, run.stdout
    assert int(found[1].replace(",", "")) >= CASES
