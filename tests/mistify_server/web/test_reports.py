"""Reports over HTTP and gRPC, with HTTP enabled and disabled."""

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.v1 import porting_pb2 as pb
from tests.mistify_server.web.conftest import Serve

Config = Callable[..., dict[str, object]]


async def test_a_report_has_its_own_content_security_policy(
    web: httpx.AsyncClient, make_config: Config
) -> None:
    configs = [make_config("half", FLOP="0.5x"), make_config("small", num_of_params=100)]
    job = (await web.post("/v1/jobs", content=json.dumps(configs))).json()["job"]["id"]
    await web.get(f"/v1/jobs/{job}/events")
    answer = await web.get(f"/v1/jobs/{job}/report.html")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert policy.endswith("; frame-ancestors 'none'")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert 'id="goal-half"' in answer.text
    assert f'href="/v1/jobs/{job}/report.html"' in (await web.get(f"/jobs/{job}")).text


async def test_an_unknown_job_has_no_report(web: httpx.AsyncClient) -> None:
    answer = await web.get("/v1/jobs/none/report.html")
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")


async def test_a_report_needs_the_token(serve: Serve) -> None:
    async with serve(token="0123456789abcdef" * 4) as web:
        assert (await web.get("/v1/jobs/none/report.html")).status_code == 401


async def test_a_server_without_http_sends_reports_in_chunks(caller: Any, make_config: Config) -> None:
    """The chunks of a long report form the complete page of the job."""
    job = await caller.submit([make_config(f"g{n}", FLOP=f"0.{90 - n}x") for n in range(3)])
    await caller.finished(job.id)
    stream = caller.stream(caller.stub.FetchReport, pb.FetchReportRequest(job_id=job.id))
    pieces = [chunk.data async for chunk in stream]
    page = b"".join(pieces).decode()
    assert len(pieces) > 1
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert re.findall(r'<tbody id="goal-(\w+)"', page) == ["g0", "g1", "g2"]
    with pytest.raises(MistifyError) as caught:
        async for _ in caller.stream(caller.stub.FetchReport, pb.FetchReportRequest(job_id="none")):
            pass
    assert caught.value.code is ErrorCode.NOT_FOUND
