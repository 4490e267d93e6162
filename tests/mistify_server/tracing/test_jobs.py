"""Traces of jobs with scripted workers, as a collector receives them."""

import json
from collections.abc import Callable
from typing import Any

import grpc
import httpx
import pytest

from mistify.errors import MistifyError
from mistify.jobs.job import JobState
from mistify_server.server import running_server
from tests.mistify_server.jobs.test_restart import server
from tests.mistify_server.tracing.conftest import CALLER
from tests.support.collectors import Collector, grpc_collector, http_collector

Config = Callable[..., dict[str, object]]

SUBMISSION = "mistify.v1.Porting/SubmitBatch"


def within(task: str, *activities: object) -> tuple[str, Any]:
    """Return the tree of a task with one attempt."""
    work = ("worker", list(activities)) if activities else "worker"
    return (task, [("attempt", [work])])


@pytest.fixture(params=["http/protobuf", "grpc"])
def receiving(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Return what opens a collector of the chosen protocol."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", request.param)
    return grpc_collector if request.param == "grpc" else http_collector


async def test_a_job_is_one_tree_from_the_call_to_the_activities_of_workers(
    site: Any, serving_at: Any, make_config: Config, receiving: Callable[[], Any]
) -> None:
    with receiving() as collector:
        async with serving_at(site.settings(traces=collector.url)) as caller:
            job = await caller.submit([make_config("half", FLOP="0.5x")], name="phones")
            job = await caller.finished(job.id)
    root = collector.root()
    assert (root.name, root.parent_id) == (SUBMISSION, "")
    inspection, of_job = collector.tree(root)
    assert inspection == within("inspect")
    assert of_job == (
        "job",
        [
            ("source", [within("source")]),
            ("edge", [within("adapt", ("tracing", ["training"]))]),
            ("package", [within("package")]),
            ("reference", [within("reference")]),
        ],
    )
    for span in collector.spans:
        for child in collector.children(span):
            if child.name != "job":  # goes on after the call
                assert span.began_ns <= child.began_ns <= child.ended_ns <= span.ended_ns, child
    (of_job,) = collector.named("job")
    assert of_job.ended_ns - of_job.began_ns >= 1e9 * job.seconds
    assert of_job.attributes == {
        "mistify.job.id": job.id,
        "mistify.job.name": "phones",
        "mistify.job.state": "done",
        "mistify.job.goals": 1,
        "mistify.job.goals_met": 1,
    }
    assert not any(span.failed for span in collector.spans)


async def test_spans_say_what_they_are_about(
    site: Any, serving_at: Any, make_config: Config, collector: Collector, monkeypatch: Any
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    async with serving_at(site.settings(traces=collector.url)) as caller:
        job = await caller.submit([make_config("half", FLOP="0.5x")])
        await caller.events(job.id)
    assert collector.root().attributes == {
        "rpc.system": "grpc",
        "rpc.service": "mistify.v1.Porting",
        "rpc.method": "SubmitBatch",
        "rpc.grpc.status_code": 0,
        "mistify.job.id": job.id,
    }
    (edge,) = collector.named("edge")
    assert edge.attributes == {"mistify.batch": 0, "mistify.edge": "0/0", "mistify.goal.id": "half"}
    (adapt,) = collector.named("adapt")
    (attempt,) = collector.children(adapt)
    assert attempt.attributes == {"mistify.worker": "worker-0", "mistify.attempt": 1}
    (worker,) = collector.children(attempt)
    assert worker.attributes["process.pid"] == site.tasks("adapt")[0]["pid"]
    stages = [about["mistify.stage"] for name, about in adapt.events if name == "stage"]
    assert stages == ["starting", "in adapt", "adapting"]
    resource = adapt.resource
    assert (resource["service.name"], resource["deployment.environment.name"]) == ("mistify-server", "test")


async def test_the_callers_trace_continues(
    site: Any, serving_at: Any, make_config: Config, collector: Collector
) -> None:
    async with serving_at(site.settings(traces=collector.url)) as caller:
        caller.metadata = (("traceparent", CALLER),)
        job = await caller.submit([make_config("half", FLOP="0.5x")])
        await caller.events(job.id)
    root = collector.root()
    assert (root.trace_id, root.parent_id) == tuple(CALLER.split("-")[1:3])


@pytest.mark.parametrize(
    "header", ["", "nonsense", CALLER.replace("00-", "ff-"), f"00-{32 * '0'}-{16 * '0'}-01"]
)
async def test_an_invalid_trace_of_a_caller_is_ignored(
    site: Any, serving_at: Any, make_config: Config, collector: Collector, header: str
) -> None:
    async with serving_at(site.settings(traces=collector.url)) as caller:
        caller.metadata = (("traceparent", header),)
        await caller.plan([make_config("half", FLOP="0.5x")])
    root = collector.root()
    assert (root.name, root.parent_id) == ("mistify.v1.Porting/Plan", "")


async def test_a_trace_that_the_caller_does_not_record_is_not_recorded(
    site: Any, serving_at: Any, make_config: Config, collector: Collector
) -> None:
    async with serving_at(site.settings(traces=collector.url)) as caller:
        caller.metadata = (("traceparent", CALLER.removesuffix("1") + "0"),)
        job = await caller.submit([make_config("half", FLOP="0.5x")])
        assert (await caller.finished(job.id)).state is JobState.DONE
    assert collector.spans == []
    assert all(
        "trace" not in line for line in (site.store / "logs" / "worker-0.log").read_text().splitlines()
    )


async def test_a_worker_that_dies_is_an_error_of_each_attempt_and_of_the_task(
    site: Any, serving_at: Any, make_config: Config, collector: Collector
) -> None:
    (site.control / "crash-adapt").write_text("3")
    async with serving_at(site.settings(traces=collector.url)) as caller:
        job = await caller.submit([make_config("half", FLOP="0.5x")])
        assert (await caller.finished(job.id)).state is JobState.FAILED
    (adapt,) = collector.named("adapt")
    attempts = collector.children(adapt)
    assert [span.attributes["mistify.attempt"] for span in attempts] == [1, 2, 3]
    for span in attempts:
        assert (span.failed, span.message) == (True, "the worker was killed by signal SIGKILL")
        assert [name for name, _ in span.events] == ["exception"]
    assert adapt.failed
    assert adapt.attributes["error.type"] == "INTERNAL"
    (of_job,) = collector.named("job")
    assert of_job.failed
    assert "SIGKILL" in of_job.message
    collector.root()


@pytest.mark.parametrize("params", [13, 17])
async def test_a_failed_task_is_an_error_of_the_worker(
    site: Any, serving_at: Any, make_config: Config, collector: Collector, params: int
) -> None:
    async with serving_at(site.settings(traces=collector.url)) as caller:
        job = await caller.submit([make_config("half", num_of_params=params)])
        await caller.events(job.id)
    reason = {13: "13 parameters bring bad luck", 17: "ValueError: 17 parameters are odd"}[params]
    (adapt,) = collector.named("adapt")
    (attempt,) = collector.children(adapt)
    (worker,) = collector.children(attempt)
    assert [(span.failed, span.message) for span in (worker, attempt, adapt)] == [(True, reason)] * 3
    assert not any(span.failed for span in collector.named("source"))


async def test_a_refused_submission_is_no_error_of_the_server(
    site: Any, serving_at: Any, collector: Collector
) -> None:
    async with serving_at(site.settings(traces=collector.url)) as caller:
        with pytest.raises(MistifyError):
            await caller.submit("{}")
    root = collector.root()
    assert (root.failed, root.attributes["error.type"]) == (False, "INVALID_CONFIG")
    assert root.attributes["rpc.grpc.status_code"] == grpc.StatusCode.INVALID_ARGUMENT.value[0]


async def test_other_calls_and_calls_without_access_are_not_traced(
    site: Any, serving_at: Any, make_config: Config, collector: Collector
) -> None:
    async with serving_at(site.settings(traces=collector.url, token="0123456789abcdef" * 4)) as caller:
        with pytest.raises(MistifyError):
            await caller.submit([make_config("half", FLOP="0.5x")])
        caller.metadata = (("authorization", f"Bearer {'0123456789abcdef' * 4}"),)
        await caller.page(1)
    assert collector.spans == []


async def test_goals_for_a_job_that_has_ended_continue_it_in_the_trace_of_their_call(
    site: Any, serving_at: Any, make_config: Config, collector: Collector
) -> None:
    async with serving_at(site.settings(traces=collector.url)) as caller:
        job = await caller.submit([make_config("half", FLOP="0.5x")])
        await caller.events(job.id)
        await caller.add(job.id, [make_config("small", FLOP="0.2x")])
        await caller.events(job.id)
    first, second = sorted(collector.named("job"), key=lambda span: span.began_ns)
    assert first.trace_id != second.trace_id
    (added,) = collector.named("mistify.v1.Porting/AddGoals")
    assert (second.trace_id, second.parent_id) == (added.trace_id, added.span_id)
    assert [span.attributes.get("mistify.goal.id") for span in collector.children(second)] == [
        "small",
        "small",
    ]
    assert [span.attributes["mistify.job.state"] for span in (first, second)] == ["done", "done"]


async def test_a_cancelled_job_ends_its_trace(
    site: Any, serving_at: Any, make_config: Config, collector: Collector, wait_until: Any
) -> None:
    (site.control / "hold-adapt").touch()
    async with serving_at(site.settings(traces=collector.url)) as caller:
        job = await caller.submit([make_config("half", FLOP="0.5x")])
        await wait_until(lambda: bool(site.tasks("adapt")))
        await caller.cancel(job.id)
    (of_job,) = collector.named("job")
    assert (of_job.failed, of_job.attributes["mistify.job.state"]) == (False, "cancelled")
    (adapt,) = collector.named("adapt")
    assert (adapt.failed, adapt.events[-1][0]) == (False, "cancelled")
    collector.root()


@pytest.fixture
def _named_in_the_environment(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")


@pytest.mark.usefixtures("_named_in_the_environment")
async def test_after_a_kill_the_next_server_completes_the_trace(
    site: Any, call_at: Any, make_config: Config, collector: Collector, wait_until: Any
) -> None:
    (site.control / "hold-adapt").touch()
    async with server(site, call_at) as (caller, process):
        job = await caller.submit([make_config("half", FLOP="0.5x")])
        await wait_until(lambda: bool(site.tasks("adapt")))
        await wait_until(lambda: {SUBMISSION, "source"} <= {span.name for span in collector.spans})
        process.kill()
        await process.wait()
    (site.control / "hold-adapt").unlink()
    async with server(site, call_at) as (caller, process):
        await caller.events(job.id)
        process.terminate()
        await process.wait()
    root = collector.root()
    assert root.name == SUBMISSION
    (of_job,) = collector.named("job")
    assert of_job.parent_id == root.span_id
    steps = [span.name for span in collector.children(of_job)]
    assert steps == ["source", "edge", "package", "reference"]
    instances = {span.resource["service.instance.id"] for span in collector.children(of_job)}
    assert len(instances) == 2


async def test_a_job_over_http_is_traced_from_its_request(
    site: Any, make_config: Config, collector: Collector
) -> None:
    settings = site.settings(traces=collector.url, http="127.0.0.1:0")
    async with running_server(settings) as (_, url), httpx.AsyncClient(base_url=str(url)) as client:
        configs = json.dumps([make_config("half", FLOP="0.5x")])
        made = await client.post("/v1/jobs", content=configs, headers={"traceparent": CALLER}, timeout=60)
        job_id = made.json()["job"]["id"]
        async with client.stream("GET", f"/v1/jobs/{job_id}/events", timeout=60) as events:
            async for _ in events.aiter_lines():
                pass
        refused = await client.post("/v1/plans", content="{", headers={"traceparent": CALLER})
    assert (made.status_code, refused.status_code) == (201, 400)
    submitted, planned = collector.named("POST /v1/jobs") + collector.named("POST /v1/plans")
    assert {span.trace_id for span in collector.spans} == {CALLER.split("-")[1]}
    assert (submitted.parent_id, planned.parent_id) == (CALLER.split("-")[2],) * 2
    about = {"http.request.method": "POST", "url.path": "/v1/jobs", "url.scheme": "http"}
    about |= {"http.route": "/v1/jobs", "http.response.status_code": 201}
    assert submitted.attributes == about
    assert (planned.failed, planned.attributes["http.response.status_code"]) == (False, 400)
    assert [span.name for span in collector.children(submitted)] == ["inspect", "job"]


async def test_a_job_runs_without_its_collector(
    site: Any, serving_at: Any, make_config: Config, monkeypatch: Any
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with http_collector() as gone:
        pass
    async with serving_at(site.settings(traces=gone.url)) as caller:
        job = await caller.submit([make_config("half", FLOP="0.5x")])
        assert (await caller.finished(job.id)).state is JobState.DONE


async def test_jobs_are_not_traced_if_their_submission_was_not(
    site: Any, serving_at: Any, make_config: Config, collector: Collector, wait_until: Any
) -> None:
    (site.control / "hold-adapt").touch()
    async with serving_at(site.settings()) as caller:
        job = await caller.submit([make_config("half", FLOP="0.5x")])
        await wait_until(lambda: bool(site.tasks("adapt")))
    (site.control / "hold-adapt").unlink()
    async with serving_at(site.settings(traces=collector.url)) as caller:
        assert (await caller.finished(job.id)).state is JobState.DONE
    assert collector.spans == []


async def test_the_config_is_not_in_a_trace(
    site: Any, serving_at: Any, make_config: Config, collector: Collector
) -> None:
    site.write("hush-model.json", json.loads((site.root / "model.json").read_text()))
    async with serving_at(site.settings(traces=collector.url)) as caller:
        job = await caller.submit([make_config("half", model="hush-model.json", FLOP="0.5x")])
        await caller.events(job.id)
    assert collector.spans
    assert "hush" not in str(collector.spans)
