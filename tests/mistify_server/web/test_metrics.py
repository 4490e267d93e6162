"""Metrics count events of all clients, and invented paths do not become labels."""

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import grpc
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mistify.v1 import porting_pb2 as pb
from mistify.v1.porting_pb2_grpc import PortingStub
from mistify_server.server import running_server

Config = Callable[..., dict[str, object]]


async def figures(web: httpx.AsyncClient, **headers: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the server's samples by name and label values."""
    answer = await web.get("/metrics", headers=headers)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return samples


async def finished(web: httpx.AsyncClient, *configs: object) -> str:
    job = str((await web.post("/v1/jobs", content=json.dumps(configs))).json()["job"]["id"])
    await web.get(f"/v1/jobs/{job}/events")
    return job


async def test_jobs_goals_and_edges_are_counted_with_their_durations(
    web: httpx.AsyncClient, make_config: Config, site: Any
) -> None:
    before = await figures(web)
    assert (before["mistify_jobs"]["done",], before["mistify_goals"]["met",]) == (0, 0)
    assert (before["mistify_workers"][()], before["mistify_slots"][()]) == (0, 1)
    await finished(web, make_config("half", FLOP="0.5x"), make_config("small", FLOP="0.2x"))
    after = await figures(web)
    assert (after["mistify_jobs"]["done",], after["mistify_goals"]["met",]) == (1, 2)
    ended = {labels: count for labels, count in after["mistify_tasks_total"].items() if count}
    assert ended == {
        ("inspect", "done"): 1,
        ("source", "done"): 1,
        ("adapt", "done"): 2,
        ("package", "done"): 2,
        ("reference", "done"): 1,
    }
    # As the scripted worker reports for each edge.
    assert after["mistify_activity_seconds_total"]["tracing",] == 2 * 0.5
    assert after["mistify_activity_seconds_total"]["training",] >= 2 * 1.5
    # The additional worker for inspections has started, or is about to.
    assert after["mistify_workers"][()] in (1, 2)
    assert after["mistify_workers_busy"][()] == 0
    assert (after["mistify_queue_length"][()], after["mistify_workers_lost_total"][()]) == (0, 0)
    assert after["mistify_database_bytes"][()] > 4096
    assert after["mistify_store_free_bytes"][()] > 0


async def test_lost_workers_and_failed_edges_are_counted(
    web: httpx.AsyncClient, make_config: Config, site: Any
) -> None:
    (site.control / "crash-adapt").write_text("4")
    await finished(web, make_config("half", FLOP="0.5x"))
    after = await figures(web)
    assert after["mistify_workers_lost_total"][()] == 3
    assert after["mistify_tasks_total"]["adapt", "failed"] == 1
    assert after["mistify_goals"]["failed",] == 1


async def test_waiting_and_running_tasks_are_counted(
    web: httpx.AsyncClient, make_config: Config, site: Any
) -> None:
    (site.control / "hold-adapt").touch()
    goals = [
        make_config(f"g{number}", FLOP=f"0.{number}x", num_of_params=100 - number) for number in (2, 3, 4)
    ]
    job = (await web.post("/v1/jobs", json=goals)).json()["job"]["id"]
    async with web.stream("GET", f"/v1/jobs/{job}/events") as stream:
        async for line in stream.aiter_lines():
            if "in adapt" in line:
                break
    during = await figures(web)
    assert (during["mistify_workers_busy"][()], during["mistify_queue_length"][()]) == (1, 2)
    assert during["mistify_jobs"]["running",] == 1
    await web.post(f"/v1/jobs/{job}/cancel")
    after = await figures(web)
    assert after["mistify_tasks_total"]["adapt", "stopped"] == 1
    assert (after["mistify_queue_length"][()], after["mistify_workers_busy"][()]) == (0, 0)


async def test_uploaded_bytes_are_counted(web: httpx.AsyncClient) -> None:
    content = b"x" * 12_345
    address = f"/v1/files/{hashlib.sha256(content).hexdigest()}"
    for _ in range(2):  # existing content is not sent again
        await web.put(address, content=content)
    after = await figures(web)
    assert (after["mistify_upload_received_bytes_total"][()], after["mistify_uploads_bytes"][()]) == (
        12_345,
    ) * 2


async def test_requests_are_counted_by_known_routes_only(web: httpx.AsyncClient) -> None:
    for path in ("/v1/jobs/one", "/v1/jobs/two", "/v1/jobs/three", "/made/up", "/made/up/again"):
        assert (await web.get(path)).status_code == 404
    await web.request("BREW", "/coffee")
    await web.get("/v1/jobs", headers={"host": "evil.example"})
    counts = (await figures(web))["mistify_http_request_seconds_count"]
    assert counts == {
        ("GET", "/v1/jobs/{job_id}", "404"): 3,
        ("GET", "other", "404"): 2,
        ("other", "other", "404"): 1,
        ("GET", "other", "403"): 1,
    }


async def test_calls_are_counted_by_method_and_status(site: Any) -> None:
    token = "0123456789abcdef" * 4
    metadata = (("authorization", f"Bearer {token}"),)
    settings = site.settings(http="127.0.0.1:0", token=token)
    async with (
        running_server(settings) as (address, url),
        grpc.aio.insecure_channel(address) as channel,
        httpx.AsyncClient(base_url=str(url), timeout=60) as web,
    ):
        stub: Any = PortingStub(channel)
        await stub.ListJobs(pb.ListJobsRequest(), metadata=metadata)
        for call in (stub.ListJobs(pb.ListJobsRequest()), stub.GetJob(pb.GetJobRequest(), metadata=metadata)):
            with pytest.raises(grpc.aio.AioRpcError):
                await call
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary("/mistify.v1.Porting/MadeUp")(b"", metadata=metadata)
        assert [event async for event in _events(stub, metadata)] == []
        counts = (await figures(web, **dict(metadata)))["mistify_rpc_seconds_count"]
    assert counts == {
        ("OK", "/mistify.v1.Porting/ListJobs"): 1,
        ("UNAUTHENTICATED", "/mistify.v1.Porting/ListJobs"): 1,
        ("NOT_FOUND", "/mistify.v1.Porting/GetJob"): 1,
        ("NOT_FOUND", "/mistify.v1.Porting/WatchJob"): 1,
    }


async def _events(stub: Any, metadata: Any) -> AsyncIterator[pb.JobEvent]:
    with suppress(grpc.aio.AioRpcError):
        async for event in stub.WatchJob(pb.WatchJobRequest(job_id="none"), metadata=metadata):
            yield event
