"""The server conforms to its OpenAPI description, for generated requests and for a client made from it."""

import asyncio
import io
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import schemathesis

from mistify_server.server import running_server

pytestmark = [pytest.mark.web, pytest.mark.timeout(900)]

#: Examples per route and phase; there are more than 1,000 cases in total.
EXAMPLES = 100
CASES = 1_000

#: A job has no archive of its packages before it has a package. A removed job can be read for a day.
SETTINGS = """\
[[operations]]
include-path = "/v1/jobs/{job_id}/packages.zip"
checks.ensure_resource_availability.enabled = false
checks.use_after_free.enabled = false

[[operations]]
include-path-regex = "^/v1/jobs/"
checks.use_after_free.enabled = false
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


class Described:
    """A client that knows nothing but the description of a server, to which each of its answers conforms."""

    def __init__(self, url: str) -> None:
        self._described = schemathesis.openapi.from_url(f"{url}openapi.json")

    def __call__(self, operation: str, body: Any = None, media_type: str | None = None, **path: str) -> Any:
        method, address = operation.split()
        parts = {} if body is None else {"body": body, "media_type": media_type or "application/json"}
        return self._described[address][method].Case(path_parameters=path, **parts).call_and_validate()


def test_a_client_made_from_the_description_goes_from_upload_to_package(
    site: Any, make_config: Callable[..., dict[str, Any]]
) -> None:
    def use(url: str) -> None:
        call = Described(url)
        goal = make_config("half", FLOP="0.5x")
        goal["model"] = upload(call, site.root / "model.json")
        goal["dataset"] = {part: upload(call, site.root / f"{part}.json") for part in ("train", "test")}
        assert len(call("POST /v1/plans", [goal]).json()["batches"]) == 1
        job = call("POST /v1/jobs", [goal]).json()["job"]["id"]
        assert b"event: goal" in call("GET /v1/jobs/{job_id}/events", job_id=job).content
        assert call("GET /v1/jobs/{job_id}", job_id=job).json()["goals_met"] == 1
        package = call("GET /v1/jobs/{job_id}/goals/{goal_id}/package.zip", job_id=job, goal_id="half")
        with zipfile.ZipFile(io.BytesIO(package.content)) as archive:
            assert "half/manifest.json" in archive.namelist()

    async def asked() -> None:
        async with running_server(site.settings(http="127.0.0.1:0")) as (_, url):
            await asyncio.to_thread(use, str(url))

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, asked()).result()


def upload(call: Described, path: Path) -> str:
    """Upload a file, and return its name for configs."""
    content = path.read_bytes()
    digest = sha256(content).hexdigest()
    sent = call("PUT /v1/files/{sha256}", content, "application/octet-stream", sha256=digest).json()
    return str(sent["name"]).replace("NAME", path.name)
