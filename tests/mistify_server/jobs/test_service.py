"""End-to-end tests of jobs: goals, checkpoints, packages and failures."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from mistify.config.package.compression import CompressionConfig
from mistify.costs.quantization import Quantization
from mistify.jobs.job import GoalState, JobState, Source
from tests.mistify_server.outcomes import goals

Config = Callable[..., dict[str, object]]


async def test_every_goal_gets_its_package(caller: Any, site: Any, make_config: Config) -> None:
    submitted = await caller.submit(
        [
            make_config("half", FLOP="0.5x"),
            make_config("quarter", FLOP="0.25x"),
            make_config("small", num_of_params=100),
        ]
    )
    assert not submitted.state.ended  # it may already be running
    assert goals(submitted).keys() == {"half", "quarter", "small"}
    job = await caller.finished(submitted.id)
    assert job.state is JobState.DONE
    costs = {"flops": 1e4, "params": 1e3, "memory_bytes": 8e3, "size_bytes": 6e3}
    assert job.sources[0] == Source(
        costs, 0.85, model="model.json", tuned_accuracy=0.86, measured={"latency_ms@host": 1.0}, steps=10
    )
    assert goals(job) == dict.fromkeys(("half", "quarter", "small"), GoalState.MET)
    assert [goal.parent for goal in job.goals] == [None, "half", None]
    for goal in job.goals:
        assert goal.measured == {"latency_ms@host": 0.5}
        assert (goal.accuracy, goal.steps, goal.reason) == (0.8, 100, "")
        assert [file.name for file in goal.files] == ["manifest.json", "serve.tflite", "signature.json"]
        for file in goal.files:
            content = await caller.fetch(job.id, goal.id, file.name)
            assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256)
    assert json.loads(await caller.fetch(job.id, "half", "manifest.json")) == {"goal": "half", "job": job.id}


async def test_child_goals_start_from_the_checkpoint_of_their_parent(
    caller: Any, site: Any, make_config: Config
) -> None:
    job = await caller.submit([make_config(str(share), FLOP=f"{share}x") for share in (0.2, 0.8, 0.5)])
    await caller.finished(job.id)
    tasks = site.tasks("adapt")
    assert [task["budget"]["flops"] for task in tasks] == [8_000, 5_000, 2_000]
    assert len({task["parent"] for task in tasks}) == 3
    assert len({task["recipe"]["seed"] for task in tasks}) == 3
    assert len({task["recipe"]["teacher"] for task in tasks}) == 1
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
    assert task["targets"] == [{"output": "", "metric": "accuracy", "value": 0.9}]
    assert goals(job) == {"easy": GoalState.MET, "hard": GoalState.UNMET}
    assert [goal.reason for goal in job.goals] == [
        "",
        "accuracy 0.8000 below 0.9000 on the test data; reached 0.8",
    ]
    assert all(goal.files for goal in job.goals)


async def test_the_children_of_an_unmet_goal_continue_from_it(
    caller: Any, site: Any, make_config: Config
) -> None:
    job = await caller.submit(
        [make_config("top", FLOP="0.5x", accuracy="0.99"), make_config("below", FLOP="0.25x")]
    )
    job = await caller.finished(job.id)
    assert goals(job) == {"top": GoalState.UNMET, "below": GoalState.MET}
    assert job.state is JobState.DONE


async def test_a_package_that_exceeds_its_size_limit_is_unmet(caller: Any, make_config: Config) -> None:
    job = await caller.submit([{**make_config("tiny", size="3KB"), "quantization": "none"}])
    job = await caller.finished(job.id)
    assert goals(job) == {"tiny": GoalState.UNMET}
    assert "over 3KB, measured on the package" in job.goals[0].reason
    assert job.goals[0].achieved["size_bytes"] > 3_000


async def test_a_precision_that_costs_too_much_accuracy_leaves_its_goal_unmet(
    caller: Any, site: Any, make_config: Config
) -> None:
    """Both goals share a checkpoint with 80% accuracy, which drops to 70% in int8."""
    asked = make_config("float32", FLOP="0.5x", accuracy="0.78")
    job = await caller.submit([asked, {**asked, "id": "int8", "quantization": "int8"}])
    job = await caller.finished(job.id)
    assert goals(job) == {"float32": GoalState.MET, "int8": GoalState.UNMET}
    assert len(site.tasks("adapt")) == 1
    float32, int8 = job.goals
    assert (float32.accuracy, float32.note) == (0.8, "")
    assert int8.accuracy == pytest.approx(0.7)
    assert int8.note.startswith("as int8: not faster; lost 14.6% of the tuned source's accuracy")
    assert int8.reason == (
        "accuracy 0.7000 below 0.7800 on the test data as int8; "
        "the checkpoint has 0.8000 in float32 on the validation data"
    )
    assert int8.spec.quantization.precision is Quantization.INT8
    assert "size_bytes@int8" in int8.achieved


async def test_compression_settings_reach_the_worker_and_the_results_the_client(
    caller: Any, site: Any, make_config: Config
) -> None:
    """Goals with one budget share a checkpoint, whether compressed or not."""
    asked = make_config("plain", FLOP="0.5x")
    job = await caller.submit([asked, {**asked, "id": "sparse", "compression": {"sparsity": 0.5}}])
    job = await caller.finished(job.id)
    await caller.add(job.id, [{**asked, "id": "clustered", "compression": {"clusters": 16}}])
    job = await caller.finished(job.id)
    assert len(site.tasks("adapt")) == 1
    assert [goal.spec.compression for goal in job.goals] == [
        None,
        CompressionConfig(sparsity=0.5),
        CompressionConfig(clusters=16),
    ]
    assert [goal.achieved.get("zero_share") for goal in job.goals] == [None, 0.5, 0.0]


async def test_a_latency_limit_is_judged_by_measurement(caller: Any, site: Any, make_config: Config) -> None:
    """The worker predicts that it meets every limit, but measures half a millisecond."""
    site.write("model.json", {"costs": {"latency_ms@host": 8.0}, "floor": {}})
    slow, fast = make_config("slow", latency="0.6ms"), make_config("fast", latency="0.4ms")
    job = await caller.submit([{**config, "quantization": "none"} for config in (slow, fast)])
    job = await caller.finished(job.id)
    assert goals(job) == {"slow": GoalState.MET, "fast": GoalState.UNMET}
    assert [(goal.achieved["latency_ms@host"], goal.measured["latency_ms@host"]) for goal in job.goals] == [
        (0.6, 0.5),
        (0.4, 0.5),
    ]
    assert job.goals[1].reason == "latency on host 500us over 400us, measured on the package"


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


async def test_a_job_fails_if_all_its_goals_fail(caller: Any, site: Any, make_config: Config) -> None:
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


async def test_a_crashed_worker_fails_no_goal(caller: Any, site: Any, make_config: Config) -> None:
    (site.control / "crash-adapt").write_text("1")
    (site.control / "crash-package").write_text("1")
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    assert goals(await caller.finished(job.id)) == {"a": GoalState.MET}


@pytest.mark.parametrize("kind", ["source", "adapt", "package"])
async def test_a_job_reports_that_tensorflow_with_onednn_ended_a_worker(
    caller: Any, site: Any, make_config: Config, kind: str
) -> None:
    """It is reported once for each goal; a worker that aborts at its first task fails no goal."""
    (site.control / f"abort-{kind}").write_text("9")
    job = await caller.submit([make_config("a", FLOP="0.5x"), make_config("b", num_of_params="0.5x")])
    finished = await caller.finished(job.id)
    assert goals(finished) == {"a": GoalState.MET, "b": GoalState.MET}
    assert [goal.note.count("was computed without TensorFlow's oneDNN") for goal in finished.goals] == [1, 1]
    assert [task["onednn"] for task in site.tasks(kind)][:2] == ["1", "0"]


async def test_a_plan_reports_that_tensorflow_with_onednn_ended_a_worker(
    caller: Any, site: Any, make_config: Config
) -> None:
    (site.control / "abort-inspect").write_text("1")
    (batch,) = (await caller.plan([make_config("a", FLOP="0.5x")])).batches
    assert "computed without TensorFlow's oneDNN optimizations" in batch.evidence
