"""Commands shown on pages can be run as they are."""

import asyncio
import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mistify_server.web.conftest import Serve
from tests.support.tokens import write_token

Config = Callable[..., dict[str, object]]

TOKEN = "0123456789abcdef" * 4
SHOWN = re.compile(r"<code>(curl .*?)</code>")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("token", [None, TOKEN])
async def test_the_command_of_the_empty_page_starts_a_job(
    serve: Serve, make_config: Config, tmp_path: Path, token: str | None
) -> None:
    (tmp_path / "goals.json").write_text(json.dumps([make_config("half", FLOP="0.5x")]))
    async with serve(token=token) as web:
        web.headers["authorization"] = f"Bearer {token}"
        (shown,) = SHOWN.findall((await web.get("/")).text)
        assert ("TOKEN_FILE" in shown) == (token is not None)
        command = html.unescape(shown).replace("TOKEN_FILE", str(write_token(tmp_path / "token", TOKEN)))
        done = await asyncio.to_thread(
            subprocess.run, ["bash", "-c", command], cwd=tmp_path, capture_output=True, check=True
        )
        job = json.loads(done.stdout)["job"]["id"]
        assert job in (await web.get("/")).text
