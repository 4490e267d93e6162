"""Static files are compressed, and cached until they change; pages are compressed, the API is not."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import brotli
import httpx
import pytest

import mistify_server.web
from mistify_server.web.assets import plotly_script
from tests.mistify_server.web.conftest import Serve
from tests.mistify_server.web.pages.test_routes import ported

STATIC = Path(mistify_server.web.__file__).parent / "static"
IN_PAGE = re.compile(r'(?:src|href)="(/static/[^"]+)"')

Config = Callable[..., dict[str, object]]


def file_of(address: str) -> Path:
    name = httpx.URL(address).path.removeprefix("/static/")
    return plotly_script() if name == "plotly.js" else STATIC / name


async def raw(web: httpx.AsyncClient, path: str, **headers: str) -> tuple[httpx.Response, bytes]:
    """Return a response and its body as it was transferred."""
    async with web.stream("GET", path, headers=headers) as answer:
        return answer, b"".join([part async for part in answer.aiter_raw()])


@pytest.fixture
async def addresses(web: httpx.AsyncClient, make_config: Config) -> list[str]:
    """Return the addresses of all static files of a job's page."""
    job = await ported(web, make_config("half", FLOP="0.5x"))
    found = IN_PAGE.findall((await web.get(f"/jobs/{job}")).text)
    assert len(found) > 5
    return found


async def test_static_files_are_compressed_for_clients_that_accept_it(
    web: httpx.AsyncClient, addresses: list[str]
) -> None:
    for address in addresses:
        expected = file_of(address).read_bytes()
        for accepted, (encoding, decompress) in {
            "gzip, deflate": ("gzip", gzip.decompress),
            "gzip, deflate, br, zstd": ("br", brotli.decompress),
            "br;q=0, gzip;q=0.5": ("gzip", gzip.decompress),
            "br;q=0.000, gzip": ("gzip", gzip.decompress),
        }.items():
            answer, body = await raw(web, address, **{"accept-encoding": accepted})
            assert answer.headers["content-encoding"] == encoding
            assert decompress(body) == expected
            assert len(body) < 0.5 * len(expected) or len(expected) < 1000
        answer, body = await raw(web, address, **{"accept-encoding": "identity"})
        assert "content-encoding" not in answer.headers
        assert body == expected
        assert answer.headers["vary"] == "accept-encoding"


async def test_static_files_are_cached_by_the_digest_in_their_address(
    web: httpx.AsyncClient, addresses: list[str]
) -> None:
    for address in addresses:
        answer = await web.get(address)
        assert "immutable" in answer.headers["cache-control"]
        for other in (address.split("?")[0], address + "0"):  # an address from another version of the server
            assert (await web.get(other)).headers["cache-control"] == "no-cache"
        unchanged = await web.get(address, headers={"if-none-match": answer.headers["etag"]})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert (await web.get(address, headers={"if-none-match": '"other"'})).content == answer.content


async def test_pages_are_compressed_and_answers_of_the_api_are_not(
    web: httpx.AsyncClient, make_config: Config
) -> None:
    job = await ported(web, make_config("half", FLOP="0.5x"))
    answer, body = await raw(web, f"/jobs/{job}", **{"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(body).startswith(b"<!doctype html>")
    assert "content-encoding" not in (await raw(web, f"/jobs/{job}", **{"accept-encoding": "br"}))[0].headers
    answer, body = await raw(web, f"/v1/jobs/{job}", **{"accept-encoding": "gzip"})
    assert json.loads(body)["job"]["id"] == job


async def test_the_login_page_has_its_static_files_without_a_session(serve: Serve) -> None:
    async with serve(token="0123456789abcdef" * 4) as web:
        found = IN_PAGE.findall((await web.get("/login")).text)
        assert len(found) > 2
        assert {(await web.get(address)).status_code for address in found} == {200}
