"""Responses and refusals of the service's calls."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState, JobState, ProgressUpdate
from mistify.jobs.part import JobPart
from mistify.v1 import porting_pb2 as pb
from mistify.v1.tuning_pb2_grpc import TuningStub
from mistify.wire import porting
from mistify_server.engines.pooled_engine import PooledEngine
from mistify_server.store.sql.reading import part_of
from tests.mistify_server.outcomes import failure, goals

Config = Callable[..., dict[str, object]]


async def test_events_are_numbered_without_gaps_and_can_be_resumed(caller: Any, make_config: Config) -> None:
    job = await caller.submit([make_config("a", FLOP="0.5x"), make_config("b", FLOP="0.25x")])
    events = await caller.events(job.id)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [
        event.event for event in events if event.goal_id is None and isinstance(event.event, JobState)
    ] == [
        JobState.QUEUED,
        JobState.RUNNING,
        JobState.DONE,
    ]
    states = [event.event for event in events if event.goal_id == "b" and isinstance(event.event, GoalState)]
    assert states == [GoalState.RUNNING, GoalState.MET]
    stages = {event.event.stage for event in events if isinstance(event.event, ProgressUpdate)}
    assert stages == {"starting", "in source", "in adapt", "adapting", "in package", "in reference"}
    for after in (0, 3, len(events) - 1, len(events), len(events) + 5):
        assert await caller.events(job.id, after) == events[after:]


async def test_a_watcher_receives_events_as_they_happen(caller: Any, site: Any, make_config: Config) -> None:
    (site.control / "hold-adapt").touch()
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    seen = []
    async for event in caller.watch(job.id):
        seen.append(event.sequence)
        if isinstance(event.event, ProgressUpdate) and event.event.stage == "in adapt":
            (site.control / "hold-adapt").unlink()
    assert seen == list(range(1, len(seen) + 1))


async def test_events_come_together_if_the_request_allows_it(caller: Any, make_config: Config) -> None:
    job = await caller.submit([make_config("a", FLOP="0.5x"), make_config("b", FLOP="0.25x")])
    events = await caller.events(job.id)
    for after in (0, 3):
        request = pb.WatchJobRequest(job_id=job.id, after_sequence=after, grouped=True)
        messages = [message async for message in caller.stream(caller.stub.WatchJob, request)]
        assert len(messages) == 1
        assert porting.events_from_proto(messages[0]) == events[after:]


async def test_a_request_for_past_events_ends_while_the_job_continues(
    caller: Any, site: Any, make_config: Config
) -> None:
    (site.control / "hold-adapt").touch()
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    async for event in caller.watch(job.id):
        if isinstance(event.event, ProgressUpdate) and event.event.stage == "in adapt":
            break
    so_far = [event async for event in caller.watch(job.id, so_far=True)]
    (site.control / "hold-adapt").unlink()
    assert so_far == (await caller.events(job.id))[: len(so_far)]
    assert so_far[-1].sequence >= event.sequence
    assert [event async for event in caller.watch(job.id, so_far=True)] == await caller.events(job.id)


async def test_a_cancelled_job_keeps_its_results(caller: Any, site: Any, make_config: Config) -> None:
    (site.control / "hold-adapt-2500").touch()
    job = await caller.submit([make_config("a", FLOP="0.5x"), make_config("b", FLOP="0.25x")])
    async for event in caller.watch(job.id):
        if event.event is GoalState.MET:
            break
    job = await caller.cancel(job.id)
    assert job.state is JobState.CANCELLED
    assert goals(job) == {"a": GoalState.MET, "b": GoalState.CANCELLED}
    assert await caller.fetch(job.id, "a", "manifest.json")
    events = await caller.events(job.id)
    assert events[-1].event is JobState.CANCELLED
    assert await caller.cancel(job.id) == job


async def test_the_same_key_gives_the_same_job(caller: Any, site: Any, make_config: Config) -> None:
    configs = [make_config("a", FLOP="0.5x")]
    jobs = await asyncio.gather(*(caller.submit(configs, key="k") for _ in range(5)))
    assert len({job.id for job in jobs}) == 1
    await caller.finished(jobs[0].id)
    assert (await caller.submit(configs, key="k")).state is JobState.DONE
    assert len(site.tasks("source")) == 1
    error = await failure(caller.submit([make_config("b", FLOP="0.5x")], key="k"))
    assert error.code is ErrorCode.CONFLICT
    assert (await caller.submit(configs)).id != jobs[0].id


async def test_keys_that_no_database_indexes_are_refused(caller: Any, make_config: Config) -> None:
    configs = [make_config("a", FLOP="0.5x")]
    long = "k" * 3_000
    for call in (caller.submit(configs, key=long), caller.add("j", configs, long)):
        error = await failure(call)
        assert (error.code, "expected up to 200" in error.message) == (ErrorCode.INVALID_CONFIG, True)


async def test_jobs_are_listed_page_by_page(caller: Any, make_config: Config) -> None:
    ids = [(await caller.submit([make_config("a", FLOP="0.5x")])).id for _ in range(3)]
    first = await caller.page(2)
    second = await caller.page(2, first.next_page_token)
    assert [job.id for job in (*first.jobs, *second.jobs)] == ids[::-1]
    assert (first.next_page_token, second.next_page_token) == (ids[1], "")
    assert len((await caller.page(0)).jobs) == 3


async def test_a_page_has_a_limited_number_of_goals(
    caller: Any, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistify_server.jobs.service.MOST_GOALS_PER_PAGE", 3)
    for count in (1, 4, 2, 1):
        await caller.submit([make_config(f"g{n}", FLOP=f"0.{n + 1}x") for n in range(count)])
    sizes, token = [], ""
    while not sizes or token:
        page = await caller.page(10, token)
        token = page.next_page_token
        sizes.append([len(job.goals) for job in page.jobs])
    assert sizes == [[1, 2], [4], [1]]


async def test_only_the_jobs_of_a_page_are_read_without_blocking_other_calls(
    caller: Any, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [(await caller.submit([make_config("a", FLOP="0.5x")])).id for _ in range(3)]
    for job_id in ids:
        await caller.finished(job_id)
    read: list[tuple[str, bool]] = []

    def noted(session: Any, row: Any, selection: Any) -> JobPart:
        read.append((row.id, threading.current_thread() is threading.main_thread()))
        return part_of(session, row, selection)

    monkeypatch.setattr("mistify_server.store.sql.pages.part_of", noted)
    monkeypatch.setattr("mistify_server.jobs.service.MOST_GOALS_PER_PAGE", 2)
    page = await caller.page(10)
    assert [job.id for job in page.jobs] == [ids[2], ids[1]]
    assert read == [(ids[2], False), (ids[1], False)]


async def test_a_download_resumes_where_it_stopped(caller: Any, make_config: Config) -> None:
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    await caller.finished(job.id)
    whole = await caller.fetch(job.id, "a", "serve.tflite")
    assert len(whole) > 3 * 256 * 1024
    for offset in (1, 300_000, len(whole) - 1, len(whole)):
        assert await caller.fetch(job.id, "a", "serve.tflite", offset) == whole[offset:]
    for offset in (-1, len(whole) + 1):
        assert (
            await failure(caller.fetch(job.id, "a", "serve.tflite", offset))
        ).code is ErrorCode.INVALID_CONFIG


async def test_unknown_jobs_goals_and_files_are_not_found(caller: Any, make_config: Config) -> None:
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    await caller.finished(job.id)
    for call in (
        caller.job("nowhere"),
        caller.cancel("nowhere"),
        caller.events("nowhere"),
        caller.page(1, "nowhere"),
        caller.fetch("nowhere", "a", "serve.tflite"),
        caller.fetch(job.id, "nowhere", "serve.tflite"),
        caller.fetch(job.id, "a", "../manifest.json"),
    ):
        assert (await failure(call)).code is ErrorCode.NOT_FOUND


async def test_all_problems_of_a_batch_are_reported_at_once(
    caller: Any, site: Any, make_config: Config
) -> None:
    """Names are looked up before a worker is used, so that mistakes in a config are reported quickly."""
    (site.root / "text.json").write_text("no network")
    site.write("shapeless.json", {"x": []})
    shapeless = make_config("shapeless", FLOP="0.5x")
    shapeless["dataset"] = {"train": "shapeless.json", "test": "test.json"}
    loaded = [
        make_config("low", FLOP="0.001x"),
        make_config("lower", num_of_params=5),
        make_config("no-model", model="text.json", FLOP="0.5x"),
        shapeless,
    ]
    named = [
        make_config("missing", model="modell.json", FLOP="0.5x"),
        make_config("algorithm", algorithm={"name": "morphnett"}, FLOP="0.5x"),
    ]
    error = await failure(caller.submit([*named, *loaded]))
    assert error.code is ErrorCode.INVALID_CONFIG
    fixes = {problem.place: problem.fix for problem in error.problems}
    assert fixes == {
        "[0].model": 'did you mean "model.json"?',
        "[1].algorithm.name": 'did you mean "morphnet"?',
    }
    assert site.tasks("inspect") == []
    error = await failure(caller.submit(loaded))
    assert sorted(problem.place for problem in error.problems) == [
        "[0].adaptation_goal.FLOP",
        "[1].adaptation_goal.num_of_params",
        "[2].model",
        "[3].dataset.train",
    ]
    assert (await caller.page(10)).jobs == []
    assert site.tasks("source") == []


@pytest.mark.parametrize(
    ("changes", "code", "place"),
    [
        ({"model": "missing.json"}, ErrorCode.INVALID_MODEL, "[0].model"),
        ({"model": "/etc/passwd"}, ErrorCode.INVALID_MODEL, "[0].model"),
        ({"model": "../control/model.json"}, ErrorCode.INVALID_MODEL, "[0].model"),
        (
            {"dataset": {"train": "missing.json", "test": "test.json"}},
            ErrorCode.INVALID_DATASET,
            "[0].dataset.train",
        ),
        (
            {"dataset": {"train": "train.json", "test": "builtin:digits-train"}},
            ErrorCode.INVALID_DATASET,
            "[0].dataset.test",
        ),
        ({"colour": "red"}, ErrorCode.INVALID_CONFIG, "[0].colour"),
        ({"adaptation_goal": {"FLOP": "5 parsec"}}, ErrorCode.INVALID_CONFIG, "[0].adaptation_goal.FLOP"),
    ],
)
async def test_the_error_code_states_the_kind_of_problem(
    caller: Any, make_config: Config, changes: dict[str, object], code: ErrorCode, place: str
) -> None:
    error = await failure(caller.submit([{**make_config("a", FLOP="0.5x"), **changes}]))
    assert (error.code, [problem.place for problem in error.problems]) == (code, [place])


async def test_broken_json_is_refused(caller: Any) -> None:
    error = await failure(caller.submit('[{"id": '))
    assert error.code is ErrorCode.INVALID_CONFIG


async def test_a_thousand_problems_arrive(caller: Any, make_config: Config) -> None:
    error = await failure(caller.submit([make_config(f"g{n}", FLOP="-1") for n in range(1000)]))
    assert len(error.problems) == 1000


async def test_problems_that_do_not_fit_into_a_response_are_counted(caller: Any, make_config: Config) -> None:
    error = await failure(caller.submit([make_config(f"g{n}", FLOP="-1") for n in range(10_000)]))
    assert error.code is ErrorCode.INVALID_CONFIG
    assert 0 < len(error.problems) < 10_000
    assert "more problems)" in error.message


async def test_a_failed_inspection_is_reported_at_its_place(
    caller: Any, site: Any, make_config: Config
) -> None:
    (site.control / "crash-inspect").write_text("9")
    error = await failure(caller.submit([make_config("a", FLOP="0.5x")]))
    assert error.code is ErrorCode.INTERNAL
    assert error.message.startswith(
        "[0] could not be inspected: inspecting the model model.json failed 3 times"
    )


async def test_a_submission_reports_a_lost_engine(
    caller: Any, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> None:
        raise MistifyError(ErrorCode.UNAVAILABLE, "the Ray cluster is lost")

    monkeypatch.setattr(PooledEngine, "run", lost)
    error = await failure(caller.submit([make_config("a", FLOP="0.5x")]))
    assert (error.code, error.message) == (ErrorCode.UNAVAILABLE, "the Ray cluster is lost")


async def test_the_health_service_reports_serving(caller: Any) -> None:
    stub = health_pb2_grpc.HealthStub(caller.channel)
    for service in ("", "mistify.v1.Porting"):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_calls_need_the_token(site: Any, make_config: Config, serving_at: Any, call_at: Any) -> None:
    async with serving_at(site.settings(token="s3cret"), "s3cret") as caller:  # noqa: S106
        assert (await caller.submit([make_config("a", FLOP="0.5x")])).id
        upload = TuningStub(caller.channel).Publish
        for header in (
            None,
            "",
            "Bearer",
            "Bearer ",
            "Bearer s",
            "Bearer s3cre",
            "Bearer s3cret1",
            "Bearer s3cret ",
            "Bearer wrong",
        ):
            caller.metadata = () if header is None else (("authorization", header),)
            for call in (caller.page(1), caller.events("x"), caller.call(upload, iter(()))):
                assert (await failure(call)).code is ErrorCode.UNAUTHENTICATED, header
        stub = health_pb2_grpc.HealthStub(caller.channel)
        await stub.Check(health_pb2.HealthCheckRequest())


async def test_an_unexpected_error_reveals_no_internals(
    caller: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("mistify_server.jobs.service.PortingService.part", broken)
    error = await failure(caller.job("x"))
    assert error.code is ErrorCode.INTERNAL
    assert "secret" not in str(error)
    assert "secret detail" in caplog.text


async def test_an_unknown_method_is_unimplemented(caller: Any) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        await caller.channel.unary_unary("/mistify.v1.Porting/Nothing")(b"")
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED  # type: ignore[attr-defined]


async def test_plans_and_goals_list_skipped_files(caller: Any, site: Any, make_config: Config) -> None:
    unread = "dataset.train: 12 .heic in cat"
    site.write(
        "heic.json",
        {
            "costs": {"flops": 500.0},
            "floor": {},
            "left_out": [unread],
            "class_counts": ["dataset.train: 9 cat"],
        },
    )
    configs = [make_config("a", model="heic.json", FLOP="0.5x")]
    (batch,) = (await caller.plan(configs)).batches
    assert (batch.left_out, batch.class_counts) == ((unread,), ("dataset.train: 9 cat",))
    (goal,) = (await caller.submit(configs)).goals
    assert goal.warning == f"{unread} are not read"


async def test_a_very_long_name_in_a_problem_is_shortened(caller: Any, make_config: Config) -> None:
    refused = await failure(caller.submit([{**make_config("a", FLOP="0.5x"), "x" * 100_000: 1}]))
    (problem,) = refused.problems
    assert problem.place.startswith("[0].xxx")
    assert problem.value.startswith('the key "xxx')
    assert len(str(problem)) < 5_000
