"""The server answers as its OpenAPI description says, whatever it is asked (schemathesis)."""

import asyncio
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mistify_server.server import running_server

pytestmark = [pytest.mark.web, pytest.mark.timeout(900)]

#: Of each route and phase; there are more than 1,000 cases in all.
EXAMPLES = 100
CASES = 1_000


def test_nothing_is_answered_that_is_not_described(site: Any) -> None:
    """Streams of events have no end. That configs are refused for their content no schema can say."""

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

    with ThreadPoolExecutor(1) as thread:  # the main thread may have Playwright's loop
        run = thread.submit(asyncio.run, asked()).result()
    assert run.returncode == 0, run.stdout
    generated = re.search(r"([\d,]+) generated", run.stdout)
    assert generated is not None, run.stdout
    assert int(generated[1].replace(",", "")) >= CASES
