"""A caller whose token has only the scope `submit` starts jobs, and is told that they run."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mistify.errors import ErrorCode
from mistify.jobs.job import JobState
from mistify_client.cli.main import app
from mistify_client.rpc import porting
from mistify_server.identity.authentication import create_token
from mistify_server.identity.callers import Scope
from mistify_server.store.directory import open_store
from tests.support.tokens import write_token

Config = Callable[..., dict[str, object]]

ADMINISTRATOR = "0123456789abcdef" * 4


@pytest.fixture
def submit_only(site: Any, tmp_path: Path) -> Path:
    with open_store(site.store) as store:
        return write_token(tmp_path / "token", create_token(store.tokens, "ci", [Scope.SUBMIT])[1])


@pytest.fixture(params=[1_000, 1], autouse=True)
def page_size(request: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(porting, "_FIRST_PAGE", porting.pb.GoalSelection(page_size=request.param))


async def test_the_job_runs_and_the_command_says_what_watching_needs(
    site: Any, serving_at: Any, submit_only: Path, make_config: Config
) -> None:
    goals = site.base / "goals.json"
    goals.write_text(json.dumps([make_config("a", FLOP="0.5x"), make_config("b", FLOP="0.4x")]))

    def mistify(address: str, *arguments: str | Path) -> Result:
        where = ("--server", address, "--token-file", str(submit_only), "--out", str(site.base / "out"))
        return CliRunner().invoke(app, [*map(str, arguments), *where])

    async with serving_at(site.settings(token=ADMINISTRATOR), ADMINISTRATOR) as caller:
        ported = await asyncio.to_thread(mistify, caller.address, "port", goals)
        (job,) = (await caller.page(1)).jobs
        assert f"job {job.id} was accepted, and runs" in ported.stderr
        assert 'the token "ci" has the scopes submit; this needs read' in ported.stderr
        assert f"mistify fetch {job.id} --server {caller.address}" in ported.stderr
        assert ported.exit_code == 15
        assert (await caller.finished(job.id)).state is JobState.DONE
        goals.write_text(json.dumps([make_config("c", FLOP="0.3x"), make_config("d", FLOP="0.2x")]))
        added = await asyncio.to_thread(mistify, caller.address, "add", job.id, goals)
        assert (added.exit_code, f"job {job.id} was accepted" in added.stderr) == (15, True)
        assert len((await caller.finished(job.id)).goals) == 4
        refused = await asyncio.to_thread(mistify, caller.address, "fetch", job.id)
        assert refused.exit_code == ErrorCode.PERMISSION_DENIED.exit_code
