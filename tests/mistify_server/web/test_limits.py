"""Limits of tokens, and what their holders use, over HTTP."""

import hashlib
from collections.abc import Callable
from typing import Any

Config = Callable[..., dict[str, object]]

TOKEN = "0123456789abcdef" * 4


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


async def test_limits_and_use_are_shown_over_http(
    site: Any, serve: Any, make_config: Config, wait_until: Any
) -> None:
    boss, goals = bearer(TOKEN), [make_config("a", FLOP="0.5x")]
    (site.control / "hold-source").touch()
    async with serve(token=TOKEN) as web:
        new = {"name": "ci", "scopes": ["submit", "read"], "max_uploads": "5KB", "max_jobs": 1}
        made = (await web.post("/v1/tokens", json=new, headers=boss)).json()
        limits = {"uploads": 5_000, "jobs": 1, "workers": None}
        assert (made["limits"], made["usage"]) == (limits, {"uploads": 0, "jobs": 0, "workers": 0})
        own = bearer(made["token"])
        content = b"x" * 3_000
        path = f"/v1/files/{hashlib.sha256(content).hexdigest()}"
        assert (await web.put(path, content=content, headers=own)).status_code == 200
        refused = await web.put(f"/v1/files/{64 * 'a'}", content=content, headers=own)
        assert (refused.status_code, refused.json()["code"]) == (429, "QUOTA_EXCEEDED")
        assert (await web.post("/v1/jobs", json=goals, headers=own)).status_code == 201
        refused = await web.post("/v1/jobs", json=goals, headers=own)
        assert (refused.status_code, refused.json()["code"]) == (429, "QUOTA_EXCEEDED")
        await wait_until(lambda: bool(site.tasks("source")))
        shown = (await web.get("/v1/caller", headers=own)).json()
        assert shown["limits"] == limits
        assert shown["usage"] == {"uploads": 3_000, "jobs": 1, "workers": 1}
        (listed,) = (await web.get("/v1/tokens", headers=boss)).json()
        assert (listed["limits"], listed["usage"]) == (shown["limits"], shown["usage"])
        page = (await web.get("/tokens", headers=boss)).text
        assert "3KB of 5KB" in page
        assert "1 of 1" in page
        change = {"max_jobs": 2, "max_uploads": None}
        assert (await web.patch("/v1/tokens/ci", json=change, headers=own)).status_code == 403
        assert (await web.patch("/v1/tokens/ci", json=change, headers=boss)).status_code == 204
        shown = (await web.get("/v1/caller", headers=own)).json()
        assert shown["limits"] == {"uploads": None, "jobs": 2, "workers": None}
        assert (await web.post("/v1/jobs", json=goals, headers=own)).status_code == 201
        for wrong, status_code in (
            ({"max_jobs": 0}, 400),
            ({"max_uploads": "much"}, 422),
            ({"max_steps": 1}, 422),
            ({"name": "other"}, 422),
        ):
            answer = await web.patch("/v1/tokens/ci", json=wrong, headers=boss)
            assert answer.status_code == status_code, wrong
        assert (await web.patch("/v1/tokens/none", json=change, headers=boss)).status_code == 404
        (site.control / "hold-source").unlink()
