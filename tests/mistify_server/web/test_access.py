"""All routes require authentication, and other sites cannot act through a browser."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc
import httpx
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.server import running_server
from mistify_server.web.access import OPEN_PATHS
from tests.mistify_server.web.conftest import Serve
from tests.support.calls import described_calls, status_of

Config = Callable[..., dict[str, object]]

TOKEN = "0123456789abcdef" * 4
BEARER = {"authorization": f"Bearer {TOKEN}"}


async def routes(web: httpx.AsyncClient) -> list[tuple[str, str]]:
    """Return the method and path of every route in the server's OpenAPI description."""
    described = (await web.get("/openapi.json", headers=BEARER)).json()["paths"]
    return [
        (method.upper(), path.replace("{", "").replace("}", ""))
        for path, methods in described.items()
        for method in methods
    ]


async def test_every_route_except_public_ones_needs_the_token(serve: Serve) -> None:
    async with serve(token=TOKEN) as web:
        known = await routes(web)
        assert len(known) > 15
        for method, path in [*known, ("GET", "/openapi.json"), ("GET", "/nowhere")]:
            answer = await web.request(method, path)
            wrong = await web.request(method, path, headers={"authorization": "Bearer other"})
            if path in OPEN_PATHS:
                assert answer.status_code != 401, path
            else:
                assert (answer.status_code, wrong.status_code) == (401, 401), path
                assert answer.json()["code"] == "UNAUTHENTICATED"
                assert (await web.request(method, path, headers=BEARER)).status_code != 401


async def test_every_rpc_needs_the_token(site: Any) -> None:
    async with (
        running_server(site.settings(token=TOKEN)) as (address, _),
        grpc.aio.insecure_channel(address) as channel,
    ):
        for path, method in described_calls().items():
            assert await status_of(channel, path, method) is grpc.StatusCode.UNAUTHENTICATED


async def test_a_browser_logs_in_with_the_token_and_logs_out(serve: Serve) -> None:
    async with serve(token=TOKEN) as web:
        refused = await web.post("/v1/session", json={"token": "other"})
        assert (refused.status_code, "Authorization" in refused.text) == (401, False)
        assert "enter the token from the server's --token-file" in refused.json()["detail"]
        answer = await web.post("/v1/session", json={"token": TOKEN})
        cookie = answer.headers["set-cookie"]
        assert answer.status_code == 204
        assert TOKEN not in cookie
        assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
        assert (await web.get("/v1/jobs")).status_code == 200
        assert "Log out" in (await web.get("/")).text
        kept = cookie.partition(";")[0]
        assert (await web.delete("/v1/session")).status_code == 204
        assert (await web.get("/v1/jobs", headers={"cookie": kept})).status_code == 401
        assert "Log out" not in (await web.get("/login", headers={"cookie": kept})).text


async def test_after_the_login_a_browser_gets_the_page_that_it_wanted(serve: Serve) -> None:
    async with serve(token=TOKEN) as web:
        answer = await web.get("/compare?before=a&after=b%26c", headers={"accept": "text/html"})
        location = urlsplit(answer.headers["location"])
        assert (answer.status_code, location.path) == (303, "/login")
        assert parse_qs(location.query) == {"next": ["/compare?before=a&after=b%26c"]}


async def test_without_a_token_there_is_nothing_to_log_out_of(web: httpx.AsyncClient) -> None:
    await web.post("/v1/session", json={"token": "any"})
    assert "Log out" not in (await web.get("/")).text


async def test_the_size_of_a_login_is_limited(serve: Serve) -> None:
    login = json.dumps({"token": TOKEN})
    async with serve(token=TOKEN) as web:
        assert (await web.post("/v1/session", content=login.ljust(4_096))).status_code == 204
        answer = await web.post("/v1/session", content=login.ljust(4_097))
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_CONFIG")
        assert "more than 4,096 bytes" in answer.json()["detail"]


async def test_an_invalid_login_is_refused(web: httpx.AsyncClient) -> None:
    wrong = {b'{"token": 1}': "body.token", b"{}": "body.token", b"[]": "body", b"": "body", b"\xff": "body"}
    for body, place in wrong.items():
        answer = await web.post("/v1/session", content=body)
        assert answer.status_code == 422
        assert [problem["place"] for problem in answer.json()["problems"]] == [place]


async def test_the_login_is_described_in_openapi(web: httpx.AsyncClient) -> None:
    described = (await web.get("/openapi.json")).json()["paths"]["/v1/session"]["post"]["requestBody"]
    assert described["required"]
    assert described["content"]["application/json"]["schema"]["required"] == ["token"]


async def test_other_sites_cannot_change_anything(serve: Serve, make_config: Config) -> None:
    async with serve() as web:
        own = f"http://127.0.0.1:{web.base_url.port}"
        for origin in ("https://evil.example", "null", own.replace("http", "https")):
            answer = await web.post(
                "/v1/jobs", json=[make_config("x", FLOP="0.5x")], headers={"origin": origin}
            )
            assert answer.status_code == 403
            assert origin in answer.json()["detail"]
        assert (await web.get("/v1/jobs")).json()["jobs"] == []
        answer = await web.post("/v1/jobs", json=[make_config("x", FLOP="0.5x")], headers={"origin": own})
        assert answer.status_code == 201


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "["])
async def test_other_host_names_are_refused(serve: Serve, host: str) -> None:
    async with serve() as web:
        for path in ("/v1/jobs", "/healthz"):
            assert (await web.get(path, headers={"host": host})).status_code == 403


async def test_host_names_of_this_machine_are_accepted(serve: Serve) -> None:
    async with serve() as web:
        for host in ("localhost", f"localhost:{web.base_url.port}", "[::1]:7466", "127.0.0.1"):
            assert (await web.get("/v1/jobs", headers={"host": host})).status_code == 200


async def test_every_response_forbids_content_from_other_sites(serve: Serve) -> None:
    async with serve(token=TOKEN) as web:
        for path in ("/v1/jobs", "/healthz", "/nowhere"):
            answer = await web.get(path)
            assert "default-src 'self'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "access-control-allow-origin" not in answer.headers


async def test_health_is_public(serve: Serve) -> None:
    async with serve(token=TOKEN) as web:
        for path in ("/healthz", "/readyz"):
            assert (await web.get(path)).json() == {"status": "ok"}


async def test_a_server_with_an_unreadable_store_is_not_ready(serve: Serve, site: Any) -> None:
    async with serve() as web:
        with sqlite3.connect(site.store / "mistify.db") as database:
            database.execute("ALTER TABLE jobs RENAME TO gone")
        assert (await web.get("/readyz")).status_code >= 500
        assert (await web.get("/healthz")).status_code == 200
        with sqlite3.connect(site.store / "mistify.db") as database:
            database.execute("ALTER TABLE gone RENAME TO jobs")
        assert (await web.get("/readyz")).status_code == 200


async def test_browsers_reach_the_server_through_a_proxy_that_terminates_tls(
    serve: Serve, make_config: Config
) -> None:
    public = "https://porting.example.org"
    behind = {**BEARER, "host": "porting.example.org"}
    goals = [make_config("x", FLOP="0.5x")]
    async with serve(token=TOKEN, http_origins=[public]) as web:
        own = f"http://127.0.0.1:{web.base_url.port}"
        refused = (
            "https://evil.example",
            "null",
            "http://porting.example.org",
            own,
            f"{public}.evil.example",
        )
        for origin in refused:
            answer = await web.post("/v1/jobs", json=goals, headers={**behind, "origin": origin})
            assert answer.status_code == 403, origin
        # Its pages must not act through another host name of the server.
        answer = await web.post("/v1/jobs", json=goals, headers={**BEARER, "origin": public})
        assert answer.status_code == 403
        assert "--http-origin" in answer.json()["detail"]
        assert (await web.get("/v1/jobs", headers=BEARER)).json()["jobs"] == []
        answer = await web.post("/v1/session", json={"token": TOKEN}, headers={**behind, "origin": public})
        assert (answer.status_code, "Secure" in answer.headers["set-cookie"]) == (204, True)
        answer = await web.post("/v1/jobs", json=goals, headers={**behind, "origin": public})
        assert answer.status_code == 201
        assert (await web.post("/v1/jobs", json=goals, headers={**BEARER, "origin": own})).status_code == 201
        assert "Secure" not in (await web.post("/v1/session", json={"token": TOKEN})).headers["set-cookie"]
        page = await web.get("/", headers={**behind, "accept": "text/html"})
        assert page.status_code == 200


async def test_a_server_behind_a_proxy_needs_a_token(site: Any) -> None:
    with pytest.raises(MistifyError, match="--token-file") as caught:
        async with running_server(
            site.settings(http="127.0.0.1:0", http_origins=["https://porting.example.org"])
        ):
            pass
    assert caught.value.code is ErrorCode.UNAUTHENTICATED


async def test_a_public_address_requires_a_token(site: Any) -> None:
    with pytest.raises(MistifyError, match="or a token") as caught:
        async with running_server(site.settings(http="0.0.0.0:0")):
            pass
    assert caught.value.code is ErrorCode.UNAUTHENTICATED


async def test_a_configured_address_in_use_is_an_error(serve: Serve, site: Any) -> None:
    async with serve() as web:
        taken = urlsplit(str(web.base_url)).netloc
        other = replace(site.settings(http=taken), store=site.base / "other")
        with pytest.raises(MistifyError, match="--http off") as caught:
            async with running_server(other):
                pass
        assert caught.value.code is ErrorCode.ADDRESS_IN_USE


async def test_a_default_address_in_use_is_skipped(
    serve: Serve, site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve() as web:
        monkeypatch.setattr("mistify_server.server.DEFAULT_HTTP", urlsplit(str(web.base_url)).netloc)
        other = replace(site.settings(http=None), store=site.base / "other")
        async with running_server(other) as (address, url):
            assert url is None
            assert address
