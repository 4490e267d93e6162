"""Every call and every route needs its scope, and nothing else is allowed."""

import json
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.api.scopes import SCOPES
from mistify_server.identity.authentication import create_token
from mistify_server.identity.callers import Scope
from mistify_server.server import running_server
from mistify_server.store.directory import open_store
from mistify_server.store.sql.tokens import SqlTokenStore
from mistify_server.web.access import OPEN_PATHS, scope_of
from tests.support.calls import described_calls, status_of

Config = Callable[..., dict[str, object]]

TOKEN = "0123456789abcdef" * 4


@pytest.fixture
def secrets(site: Any) -> dict[Scope, str]:
    """Return the secret of a token for each scope."""
    with open_store(site.store) as store:
        return {scope: create_token(store.tokens, f"only-{scope}", [scope])[1] for scope in Scope}


def test_every_call_has_a_scope() -> None:
    assert set(SCOPES) == set(described_calls())


async def test_a_call_needs_exactly_its_scope(site: Any, secrets: dict[Scope, str]) -> None:
    async with (
        running_server(site.settings(token=TOKEN)) as (address, _),
        grpc.aio.insecure_channel(address) as channel,
    ):
        for path, method in described_calls().items():
            for scope, secret in secrets.items():
                status = await status_of(channel, path, method, secret)
                allowed = scope in (SCOPES[path], Scope.ADMIN)
                assert (status is not grpc.StatusCode.PERMISSION_DENIED) is allowed, (path, scope, status)


async def test_only_administrators_change_what_runs_on_devices(site: Any, secrets: dict[Scope, str]) -> None:
    calls = described_calls()
    async with (
        running_server(site.settings(token=TOKEN)) as (address, _),
        grpc.aio.insecure_channel(address) as channel,
    ):
        for name in ("StartRollout", "PauseRollout", "ResumeRollout", "RollBack"):
            path = f"/mistify.v1.Rollouts/{name}"
            status = await status_of(channel, path, calls[path], secrets[Scope.SUBMIT])
            assert status is grpc.StatusCode.PERMISSION_DENIED, name


async def test_a_route_needs_exactly_its_scope(serve: Any, secrets: dict[Scope, str]) -> None:
    async with serve(token=TOKEN) as web:
        described = (await web.get("/openapi.json", headers=bearer(TOKEN))).json()["paths"]
        tried = [(method.upper(), path) for path, methods in described.items() for method in methods]
        tried += [
            ("GET", "/"),
            ("GET", "/submit"),
            ("GET", "/fleet"),
            ("GET", "/tokens"),
            ("PATCH", "/nowhere"),
        ]
        for method, path in tried:
            filled = path.replace("{", "").replace("}", "")
            for scope, secret in secrets.items():
                answer = await web.request(method, filled, headers=bearer(secret))
                allowed = filled in OPEN_PATHS or scope in (needed(method, filled), Scope.ADMIN)
                assert (answer.status_code != 403) is allowed, (method, path, scope, answer.status_code)


def needed(method: str, path: str) -> Scope:
    """Return the scope of a route, by rules that are independent of the server's."""
    if "/tokens" in path or ("/rollouts" in path and method == "POST"):
        return Scope.ADMIN
    return Scope.READ if method == "GET" and not path.startswith("/v1/files/") else Scope.SUBMIT


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def test_unknown_methods_need_a_scope() -> None:
    assert scope_of("BREW", "/v1/jobs") is Scope.SUBMIT
    assert scope_of("GET", "/v1/tokensmith") is Scope.READ
    assert scope_of("HEAD", "/v1/files/0") is SCOPES["/mistify.v1.Files/FindFiles"]
    assert scope_of("BREW", "/v1/rollouts/r") is Scope.ADMIN
    assert scope_of("POST", "/v1/rollouts-of-others") is Scope.SUBMIT


async def test_jobs_know_who_submitted_them(
    site: Any, serving_at: Any, serve: Any, make_config: Config, secrets: dict[Scope, str]
) -> None:
    goals = [make_config("a", FLOP="0.5x")]
    async with serving_at(site.settings(token=TOKEN), secrets[Scope.SUBMIT]) as caller:
        assert (await caller.submit(goals)).submitted_by == "only-submit"
    async with serve(token=TOKEN) as web:
        made = await web.post("/v1/jobs", json=goals, headers=bearer(TOKEN))
        assert made.json()["job"]["submitted_by"] == "administrator"
        listed = (await web.get("/v1/jobs", headers=bearer(secrets[Scope.READ]))).json()["jobs"]
        assert [part["job"]["submitted_by"] for part in listed] == ["administrator", "only-submit"]
        page = await web.get(f"/jobs/{made.json()['job']['id']}", headers=bearer(TOKEN))
        assert "by administrator" in page.text


async def test_what_callers_change_is_recorded(
    site: Any, serving_at: Any, serve: Any, make_config: Config, secrets: dict[Scope, str]
) -> None:
    goals = [make_config("a", FLOP="0.5x")]
    async with serving_at(site.settings(token=TOKEN), secrets[Scope.SUBMIT]) as caller:
        job = await caller.submit(goals, name="for phones")
        with pytest.raises(MistifyError):
            await caller.cancel("none")
        with pytest.raises(MistifyError):
            await caller.job(job.id)
    async with serve(token=TOKEN) as web:
        made = await web.post("/v1/jobs", json=goals, headers=bearer(TOKEN))
        assert (await web.delete("/v1/jobs/none", headers=bearer(secrets[Scope.READ]))).status_code == 403
        assert (await web.delete("/v1/jobs/none", headers=bearer("wrong"))).status_code == 401
        await web.get("/v1/jobs", headers=bearer(TOKEN))
    lines = [json.loads(line) for line in (site.store / "logs" / "audit.jsonl").read_text().splitlines()]
    assert [{name: value for name, value in line.items() if name != "time"} for line in lines] == [
        {
            "caller": "only-submit",
            "action": "mistify.v1.Porting/SubmitBatch",
            "subject": job.id,
            "outcome": "OK",
        },
        {
            "caller": "only-submit",
            "action": "mistify.v1.Porting/CancelJob",
            "subject": "none",
            "outcome": "NOT_FOUND",
        },
        {"caller": "only-submit", "action": "mistify.v1.Porting/GetJob", "outcome": "PERMISSION_DENIED"},
        {
            "caller": "administrator",
            "action": "POST /v1/jobs",
            "subject": made.headers["location"],
            "outcome": "OK",
        },
        {"caller": "only-read", "action": "DELETE /v1/jobs/none", "outcome": "HTTP 403"},
    ]
    assert all(line["time"].endswith("+00:00") for line in lines)


async def test_refused_callers_learn_the_scope_that_they_lack(
    site: Any, serving_at: Any, secrets: dict[Scope, str]
) -> None:
    async with serving_at(site.settings(token=TOKEN), secrets[Scope.TUNE]) as caller:
        with pytest.raises(MistifyError, match='"only-tune" has the scopes tune; this needs read') as caught:
            await caller.job("none")
        assert caught.value.code is ErrorCode.PERMISSION_DENIED


async def test_an_administrator_makes_and_revokes_tokens_over_http(serve: Any) -> None:
    async with serve(token=TOKEN) as web:
        new = {"name": "ci", "scopes": ["submit", "read"], "days": 7}
        made = (await web.post("/v1/tokens", json=new, headers=bearer(TOKEN))).json()
        own = bearer(made["token"])
        assert (await web.get("/v1/caller", headers=own)).json() == {
            "name": "ci",
            "scopes": ["read", "submit"],
            "limits": {"uploads": None, "jobs": None, "workers": None},
            "usage": {"uploads": 0, "jobs": 0, "workers": 0},
            "tenant": "default",
        }
        assert (await web.get("/v1/jobs", headers=own)).status_code == 200
        (listed,) = (await web.get("/v1/tokens", headers=bearer(TOKEN))).json()
        assert listed == {name: value for name, value in made.items() if name != "token"}
        assert listed["expires_unix_ms"] - listed["created_unix_ms"] == 7 * 24 * 3600 * 1000
        assert made["token"] not in (await web.get("/tokens", headers=bearer(TOKEN))).text
        for wrong, status in (({**new, "days": 0}, 422), ({**new, "scopes": ["all"]}, 422), (new, 409)):
            assert (await web.post("/v1/tokens", json=wrong, headers=bearer(TOKEN))).status_code == status
        assert (await web.delete("/v1/tokens/ci", headers=bearer(TOKEN))).status_code == 204
        assert (await web.get("/v1/jobs", headers=own)).status_code == 401
        assert (await web.delete("/v1/tokens/ci", headers=bearer(TOKEN))).status_code == 404


async def test_callers_are_told_that_the_store_cannot_be_read(
    serve: Any, secrets: dict[Scope, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: object, __: str) -> None:
        raise MistifyError(ErrorCode.UNAVAILABLE, "the server's store is busy")

    async with serve(token=TOKEN) as web:
        monkeypatch.setattr(SqlTokenStore, "find", failing)
        answer = await web.get("/v1/jobs", headers=bearer(secrets[Scope.READ]))
        assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
        assert (await web.get("/v1/jobs", headers=bearer(TOKEN))).status_code == 200


async def test_a_session_ends_with_its_token(site: Any, serve: Any, secrets: dict[Scope, str]) -> None:
    async with serve(token=TOKEN) as web:
        assert (await web.post("/v1/session", json={"token": secrets[Scope.READ]})).status_code == 204
        page = await web.get("/", headers={"accept": "text/html"})
        assert ("only-read" in page.text, "/tokens" in page.text) == (True, False)
        refused = await web.get("/tokens", headers={"accept": "text/html"})
        assert (refused.status_code, "this needs admin" in refused.text) == (403, True)
        with open_store(site.store) as store:
            store.tokens.revoke("only-read")
        assert (await web.get("/v1/jobs")).status_code == 401
        assert "only-read" not in (await web.get("/login")).text


@pytest.mark.parametrize(("method", "path"), [("PATCH", "/v1/jobs/none"), ("POST", "/v1/tokens")])
async def test_small_bodies_have_a_limit(serve: Any, method: str, path: str) -> None:
    async with serve(token=TOKEN) as web:
        answer = await web.request(method, path, content=b" " * 70_000, headers=bearer(TOKEN))
        assert answer.status_code == 400
        detail = answer.json()["detail"]
        assert "got a body of more than 65,536 bytes; send only " in detail
        assert "name" in detail
        api = (await web.get("/openapi.json", headers=bearer(TOKEN))).json()
        assert "#/$defs" not in json.dumps(api)
        assert "Scope" in api["components"]["schemas"]
        (content,) = [
            call["requestBody"]["content"]["application/json"]["schema"]
            for name, calls in api["paths"].items()
            for verb, call in calls.items()
            if (verb.upper(), name.replace("{job_id}", "none")) == (method, path)
        ]
        assert "name" in content["properties"]
