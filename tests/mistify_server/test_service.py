import asyncio
import hashlib
import json
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mistify.compression import CompressionConfig
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs import GoalState, Job, JobState, ProgressUpdate, Source
from mistify.quantization import Quantization

Config = Callable[..., dict[str, object]]


def goals(job: Job) -> dict[str, GoalState]:
    return {goal.id: goal.state for goal in job.goals}


async def failure(call: Any) -> MistifyError:
    with pytest.raises(MistifyError) as raised:
        await call
    return raised.value


async def test_every_goal_gets_its_package(caller: Any, site: Any, make_config: Config) -> None:
    submitted = await caller.submit(
        [
            make_config("half", FLOP="0.5x"),
            make_config("quarter", FLOP="0.25x"),
            make_config("small", num_of_params=100),
        ]
    )
    assert (submitted.state, set(goals(submitted).values())) == (JobState.QUEUED, {GoalState.WAITING})
    job = await caller.finished(submitted.id)
    assert job.state is JobState.DONE
    assert job.source == Source({"flops": 1e4, "params": 1e3, "memory_bytes": 8e3, "size_bytes": 6e3}, 0.9)
    assert goals(job) == dict.fromkeys(("half", "quarter", "small"), GoalState.MET)
    assert [goal.parent for goal in job.goals] == [None, "half", None]
    for goal in job.goals:
        assert goal.measured == {"latency_ms@host": 0.5}
        assert (goal.accuracy, goal.steps, goal.reason) == (0.8, 100, "")
        assert [file.name for file in goal.files] == ["manifest.json", "serve.tflite"]
        for file in goal.files:
            content = await caller.fetch(job.id, goal.id, file.name)
            assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256)
    assert json.loads(await caller.fetch(job.id, "half", "manifest.json")) == {"goal": "half", "job": job.id}


async def test_children_start_from_their_parents_checkpoint(
    caller: Any, site: Any, make_config: Config
) -> None:
    job = await caller.submit([make_config(str(share), FLOP=f"{share}x") for share in (0.2, 0.8, 0.5)])
    await caller.finished(job.id)
    tasks = site.tasks("adapt")
    assert [task["budget"]["flops"] for task in tasks] == [8_000, 5_000, 2_000]
    assert len({task["parent"] for task in tasks}) == 3
    assert len({task["seed"] for task in tasks}) == 3
    assert len({task["teacher"] for task in tasks}) == 1
    assert [task["exceed"] for task in site.tasks("source")] == [{}]


async def test_goals_above_the_source_start_from_a_wider_one(
    caller: Any, site: Any, make_config: Config
) -> None:
    job = await caller.submit([make_config("large", FLOP="2x"), make_config("huge", num_of_params="9x")])
    await caller.finished(job.id)
    (source,) = site.tasks("source")
    assert source["exceed"] == {"flops": 20_000, "params": 4_000}


async def test_equal_budgets_share_a_checkpoint(caller: Any, site: Any, make_config: Config) -> None:
    job = await caller.submit(
        [make_config("easy", FLOP="0.5x", accuracy="0.7"), make_config("hard", FLOP="0.5x", accuracy="0.9")]
    )
    job = await caller.finished(job.id)
    (task,) = site.tasks("adapt")
    assert task["accuracy_target"] == 0.9
    assert goals(job) == {"easy": GoalState.MET, "hard": GoalState.UNMET}
    assert [goal.reason for goal in job.goals] == ["", "reached 0.8 of 0.9"]
    assert all(goal.files for goal in job.goals)


async def test_the_children_of_an_unmet_goal_go_on_from_it(
    caller: Any, site: Any, make_config: Config
) -> None:
    job = await caller.submit(
        [make_config("top", FLOP="0.5x", accuracy="0.99"), make_config("below", FLOP="0.25x")]
    )
    job = await caller.finished(job.id)
    assert goals(job) == {"top": GoalState.UNMET, "below": GoalState.MET}
    assert job.state is JobState.DONE


async def test_a_package_above_its_size_is_unmet(caller: Any, make_config: Config) -> None:
    job = await caller.submit([make_config("tiny", size="3KB")])
    job = await caller.finished(job.id)
    assert goals(job) == {"tiny": GoalState.UNMET}
    assert "over 3,000, as measured on the package" in job.goals[0].reason
    assert job.goals[0].achieved["size_bytes"] > 3_000


async def test_a_precision_that_costs_too_much_accuracy_leaves_its_goal_unmet(
    caller: Any, site: Any, make_config: Config
) -> None:
    """Both share a checkpoint of 80 %; as int8 it has 75 %."""
    asked = make_config("float32", FLOP="0.5x", accuracy="0.78")
    job = await caller.submit([asked, {**asked, "id": "int8", "quantization": "int8"}])
    job = await caller.finished(job.id)
    assert goals(job) == {"float32": GoalState.MET, "int8": GoalState.UNMET}
    assert len(site.tasks("adapt")) == 1
    float32, int8 = job.goals
    assert (float32.accuracy, float32.note) == (0.8, "")
    assert (int8.accuracy, int8.note) == (pytest.approx(0.75), "as int8: not faster")
    assert int8.reason == "accuracy 0.7500 below 0.7800 as int8; the checkpoint has 0.8000 in float32"
    assert int8.quantization.precision is Quantization.INT8
    assert "size_bytes@int8" in int8.achieved


async def test_a_compression_reaches_the_worker_and_what_came_of_it_the_client(
    caller: Any, site: Any, make_config: Config
) -> None:
    """Goals of one budget share a checkpoint, compressed or not."""
    asked = make_config("plain", FLOP="0.5x")
    job = await caller.submit([asked, {**asked, "id": "sparse", "compression": {"sparsity": 0.5}}])
    job = await caller.finished(job.id)
    await caller.add(job.id, [{**asked, "id": "clustered", "compression": {"clusters": 16}}])
    job = await caller.finished(job.id)
    assert len(site.tasks("adapt")) == 1
    assert [goal.compression for goal in job.goals] == [
        None,
        CompressionConfig(sparsity=0.5),
        CompressionConfig(clusters=16),
    ]
    assert [goal.achieved.get("zero_share") for goal in job.goals] == [None, 0.5, 0.0]


async def test_latency_is_met_only_as_measured(caller: Any, site: Any, make_config: Config) -> None:
    """The worker reaches every limit by its prediction, and measures half a millisecond."""
    site.write("model.json", {"costs": {"latency_ms@host": 8.0}, "floor": {}})
    job = await caller.submit([make_config("slow", latency="0.6ms"), make_config("fast", latency="0.4ms")])
    job = await caller.finished(job.id)
    assert goals(job) == {"slow": GoalState.MET, "fast": GoalState.UNMET}
    assert [(goal.achieved["latency_ms@host"], goal.measured["latency_ms@host"]) for goal in job.goals] == [
        (0.6, 0.5),
        (0.4, 0.5),
    ]
    assert job.goals[1].reason == "latency_ms@host 0.5 over 0.4, as measured on the package"


async def test_a_failed_goal_fails_its_subtree_only(caller: Any, make_config: Config) -> None:
    job = await caller.submit(
        [
            make_config("bad", num_of_params=13),
            make_config("worse", num_of_params=12),
            make_config("good", FLOP="0.5x"),
        ]
    )
    job = await caller.finished(job.id)
    assert goals(job) == {"bad": GoalState.FAILED, "worse": GoalState.FAILED, "good": GoalState.MET}
    assert job.goals[0].reason == "13 parameters bring bad luck"
    assert job.goals[1].reason.startswith("the goal bad, from which it is adapted, failed")
    assert job.state is JobState.DONE


async def test_a_job_fails_when_nothing_could_be_done(caller: Any, site: Any, make_config: Config) -> None:
    site.write("broken.json", {"costs": {"flops": 10.0, "broken": 1.0}, "floor": {}})
    job = await caller.submit([make_config("a", model="broken.json", FLOP="0.5x")])
    job = await caller.finished(job.id)
    assert (job.state, goals(job)) == (JobState.FAILED, {"a": GoalState.FAILED})
    assert job.reason == "the source could not be prepared: the source is broken"


async def test_batches_are_independent(caller: Any, site: Any, make_config: Config) -> None:
    site.write("broken.json", {"costs": {"flops": 10.0, "broken": 1.0}, "floor": {}})
    job = await caller.submit(
        [make_config("a", model="broken.json", FLOP="0.5x"), make_config("b", FLOP="0.5x")]
    )
    job = await caller.finished(job.id)
    assert (job.state, goals(job)) == (JobState.DONE, {"a": GoalState.FAILED, "b": GoalState.MET})
    assert [goal.batch for goal in job.goals] == [0, 1]


async def test_independent_subtrees_run_in_parallel(
    site: Any, make_config: Config, serving_at: Any, wait_until: Any
) -> None:
    (site.control / "hold-adapt").touch()
    async with serving_at(site.settings(slots=2)) as caller:
        job = await caller.submit([make_config("a", FLOP="0.5x"), make_config("b", num_of_params="0.5x")])
        await wait_until(lambda: len(site.tasks("adapt")) == 2)
        (site.control / "hold-adapt").unlink()
        assert (await caller.finished(job.id)).state is JobState.DONE


async def test_a_crashed_worker_costs_no_goal(caller: Any, site: Any, make_config: Config) -> None:
    (site.control / "crash-adapt").write_text("1")
    (site.control / "crash-package").write_text("1")
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    assert goals(await caller.finished(job.id)) == {"a": GoalState.MET}


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
    assert stages == {"starting", "in source", "in adapt", "in package"}
    for after in (0, 3, len(events) - 1, len(events), len(events) + 5):
        assert await caller.events(job.id, after) == events[after:]


async def test_a_watcher_sees_events_as_they_come(caller: Any, site: Any, make_config: Config) -> None:
    (site.control / "hold-adapt").touch()
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    seen = []
    async for event in caller.watch(job.id):
        seen.append(event.sequence)
        if isinstance(event.event, ProgressUpdate) and event.event.stage == "in adapt":
            (site.control / "hold-adapt").unlink()
    assert seen == list(range(1, len(seen) + 1))


async def test_a_cancelled_job_keeps_what_is_done(caller: Any, site: Any, make_config: Config) -> None:
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


async def test_the_same_key_is_the_same_job(caller: Any, site: Any, make_config: Config) -> None:
    configs = [make_config("a", FLOP="0.5x")]
    jobs = await asyncio.gather(*(caller.submit(configs, key="k") for _ in range(5)))
    assert len({job.id for job in jobs}) == 1
    await caller.finished(jobs[0].id)
    assert (await caller.submit(configs, key="k")).state is JobState.DONE
    assert len(site.tasks("source")) == 1
    error = await failure(caller.submit([make_config("b", FLOP="0.5x")], key="k"))
    assert error.code is ErrorCode.CONFLICT
    assert (await caller.submit(configs)).id != jobs[0].id


async def test_jobs_are_listed_page_by_page(caller: Any, make_config: Config) -> None:
    ids = [(await caller.submit([make_config("a", FLOP="0.5x")])).id for _ in range(3)]
    first = await caller.page(2)
    second = await caller.page(2, first.next_page_token)
    assert [job.id for job in (*first.jobs, *second.jobs)] == ids[::-1]
    assert (first.next_page_token, second.next_page_token) == (ids[1], "")
    assert len((await caller.page(0)).jobs) == 3


async def test_a_page_has_so_many_goals(
    caller: Any, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistify_server.service.MOST_GOALS_PER_PAGE", 3)
    for count in (1, 4, 2, 1):
        await caller.submit([make_config(f"g{n}", FLOP=f"0.{n + 1}x") for n in range(count)])
    sizes, token = [], ""
    while not sizes or token:
        page = await caller.page(10, token)
        token = page.next_page_token
        sizes.append([len(job.goals) for job in page.jobs])
    assert sizes == [[1, 2], [4], [1]]


async def test_a_download_goes_on_where_it_stopped(caller: Any, make_config: Config) -> None:
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


async def test_what_is_not_there_is_not_found(caller: Any, make_config: Config) -> None:
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


async def test_every_problem_of_a_batch_is_told_at_once(caller: Any, site: Any, make_config: Config) -> None:
    (site.root / "text.json").write_text("no network")
    site.write("shapeless.json", {"x": []})
    shapeless = make_config("shapeless", FLOP="0.5x")
    shapeless["dataset"] = {"train": "shapeless.json", "test": "test.json"}
    error = await failure(
        caller.submit(
            [
                make_config("low", FLOP="0.001x"),
                make_config("lower", num_of_params=5),
                make_config("missing", model="modell.json", FLOP="0.5x"),
                make_config("no-model", model="text.json", FLOP="0.5x"),
                make_config("algorithm", algorithm={"name": "morphnett"}, FLOP="0.5x"),
                shapeless,
            ]
        )
    )
    assert error.code is ErrorCode.INVALID_CONFIG
    assert sorted(problem.place for problem in error.problems) == [
        "[0].adaptation_goal.FLOP",
        "[1].adaptation_goal.num_of_params",
        "[2].model",
        "[3].model",
        "[4].algorithm.name",
        "[5].dataset.train",
    ]
    fixes = {problem.place: problem.fix for problem in error.problems}
    assert fixes["[2].model"] == 'did you mean "model.json"?'
    assert fixes["[4].algorithm.name"] == 'did you mean "morphnet"?'
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
async def test_the_code_says_what_a_problem_is_about(
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


async def test_more_problems_than_a_call_can_carry_are_counted(caller: Any, make_config: Config) -> None:
    error = await failure(caller.submit([make_config(f"g{n}", FLOP="-1") for n in range(10_000)]))
    assert error.code is ErrorCode.INVALID_CONFIG
    assert 0 < len(error.problems) < 10_000
    assert "left out" in error.message


async def test_an_inspection_that_fails_names_the_place(caller: Any, site: Any, make_config: Config) -> None:
    (site.control / "crash-inspect").write_text("9")
    error = await failure(caller.submit([make_config("a", FLOP="0.5x")]))
    assert error.code is ErrorCode.INTERNAL
    assert error.message.startswith("[0] could not be inspected")


async def test_the_health_service_says_serving(caller: Any) -> None:
    stub = health_pb2_grpc.HealthStub(caller.channel)
    for service in ("", "mistify.v1.Porting"):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_calls_need_the_token(site: Any, make_config: Config, serving_at: Any, call_at: Any) -> None:
    async with serving_at(site.settings(token="s3cret"), "s3cret") as caller:  # noqa: S106
        assert (await caller.submit([make_config("a", FLOP="0.5x")])).state is JobState.QUEUED
        for token in (None, "wrong", "s3cret "):
            caller.metadata = () if token is None else (("authorization", f"Bearer {token}"),)
            for call in (caller.page(1), caller.events("x")):
                assert (await failure(call)).code is ErrorCode.UNAUTHENTICATED
        stub = health_pb2_grpc.HealthStub(caller.channel)
        await stub.Check(health_pb2.HealthCheckRequest())


async def test_an_unforeseen_error_says_nothing_of_the_inside(
    caller: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("mistify_server.service.PortingService.job", broken)
    error = await failure(caller.job("x"))
    assert error.code is ErrorCode.INTERNAL
    assert "secret" not in str(error)
    assert "secret detail" in caplog.text


async def test_an_unknown_method_is_unimplemented(caller: Any) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        await caller.channel.unary_unary("/mistify.v1.Porting/Nothing")(b"")
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED  # type: ignore[attr-defined]
