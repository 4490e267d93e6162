"""The server answers as its OpenAPI description says, whatever it is asked (schemathesis)."""

import asyncio
import re
import sys

import pytest

from tests.mistify_server.web.conftest import Serve

pytestmark = [pytest.mark.web, pytest.mark.timeout(900)]

#: Of each route and phase; there are more than 1,000 cases in all.
EXAMPLES = 100
CASES = 1_000


async def test_nothing_is_answered_that_is_not_described(serve: Serve) -> None:
    """Streams of events have no end. That configs are refused for their content no schema can say."""
    async with serve() as web:
        options = [
            *("--max-examples", str(EXAMPLES), "--generation-deterministic"),
            *("--exclude-path-regex", "events$", "--exclude-checks", "positive_data_acceptance"),
            *("--request-timeout", "60", "--no-color"),
        ]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{web.base_url}openapi.json", *options),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said = (await process.communicate())[0].decode()
        assert process.returncode == 0, said
        found = re.search(r"([\d,]+) generated", said)
        assert found is not None, said
        assert int(found[1].replace(",", "")) >= CASES
