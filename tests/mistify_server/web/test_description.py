"""The server conforms to its OpenAPI description for generated requests (schemathesis)."""

import asyncio
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mistify_server.server import running_server

pytestmark = [pytest.mark.web, pytest.mark.timeout(900)]

#: Examples per route and phase; there are more than 1,000 cases in total.
EXAMPLES = 100
CASES = 1_000

#: A job has no archive of its packages before it has a package.
SETTINGS = """\
[[operations]]
include-path = "/v1/jobs/{job_id}/packages.zip"
checks.ensure_resource_availability.enabled = false
"""


def test_all_responses_conform_to_the_description(site: Any) -> None:
    """Event streams do not end, and no schema can describe which configs are refused for their content."""
    (site.base / "schemathesis.toml").write_text(SETTINGS)

    async def asked() -> subprocess.CompletedProcess[str]:
        async with running_server(site.settings(http="127.0.0.1:0")) as (_, url):
            options = [
                *("--max-examples", str(EXAMPLES), "--generation-deterministic"),
                *("--exclude-path-regex", "events$", "--exclude-checks", "positive_data_acceptance"),
                *("--request-timeout", "60", "--no-color"),
            ]
            return await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-m", "schemathesis.cli", "run", f"{url}openapi.json", *options],
                check=False,
                cwd=site.base,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )

    with ThreadPoolExecutor(1) as thread:  # the main thread may run Playwright's event loop
        run = thread.submit(asyncio.run, asked()).result()
    assert run.returncode == 0, run.stdout
    generated = re.search(r"([\d,]+) generated", run.stdout)
    assert generated is not None, run.stdout
    assert int(generated[1].replace(",", "")) >= CASES
