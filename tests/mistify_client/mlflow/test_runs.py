"""A job and its goals as runs of MLflow, in a database."""

import hashlib
import json
from dataclasses import replace

import pytest
from mlflow.artifacts import load_text

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import Target
from mistify.errors import ErrorCode
from mistify.jobs.job import GoalState, JobEvent, JobState, ProgressUpdate
from mistify.jobs.report import report
from tests.mistify_client.conftest import REPORT_PAGE
from tests.mistify_client.mlflow.configs import CONFIG


@pytest.fixture
def job(service, package):
    """Give the job a name, tags and a real package, and return it."""
    service.serve_package(package)
    service.fake.config = CONFIG
    half, tenth = service.fake.job.goals
    half = replace(
        half,
        output_scores=(OutputScore("boxes/left", Metric.MSE, 0.25),),
        spec=replace(half.spec, budget={"flops": 500.0, "latency_ms@pi": 9.0}),
        achieved={**half.achieved, "latency_ms@pi": 8.0},
        note="int8 costs 1 point",
    )
    (source,) = service.fake.job.sources
    service.fake.job = replace(
        service.fake.job,
        goals=(half, tenth),
        sources=(replace(source, model="digits-resnet", tuned_accuracy=0.78),),
        name="phones",
        tags=("team=vision", "urgent", "mlflow.user=eve"),
        submitted_by="ann",
    )
    return service.fake.job


def test_a_job_is_a_run_and_each_goal_a_nested_one(tracked, job):
    lines = tracked.write().stdout.splitlines()
    runs = tracked.runs()
    assert set(runs) == {None, "half", "tenth"}
    own = runs[None].info.run_id
    assert lines[-1] == f'MLflow: run {own} in the experiment "{tracked.experiment}" of {tracked.uri}'
    assert runs[None].info.run_name == "phones"
    assert (runs[None].info.status, runs["half"].info.status) == ("FINISHED", "FINISHED")
    assert {run.data.tags.get("mlflow.parentRunId") for goal, run in runs.items() if goal} == {own}
    tags = runs[None].data.tags
    assert (tags["mistify.job"], tags["mistify.state"], tags["mlflow.user"]) == ("job-1", "done", "ann")
    assert (tags["team"], tags["mistify.tags"]) == ("vision", "team=vision urgent mlflow.user=eve")


def test_parameters_are_those_of_the_goal_and_of_its_algorithm(tracked, job):
    tracked.write()
    params = tracked.runs()["half"].data.params
    assert params == {
        "model": "digits-resnet",
        "algorithm": "morphnet",
        "precision": "none",
        "inputs": "float32",
        "hardware": "pi",
        "threads": "1",
        "limit/flops": "500.0",
        "limit/latency_ms.pi": "9.0",
        "target/all/accuracy": "0.7",
        "seed": "7",
        "settings/tune_steps": "30",
    }
    assert tracked.runs()["tenth"].data.params["parent"] == "half"


def test_metrics_are_those_of_the_report(tracked, job):
    tracked.write()
    runs = tracked.runs()
    half = runs["half"].data.metrics
    achieved = report(job)["goals"][0]["achieved"]
    for name in ("flops", "params", "memory_bytes", "latency_ms", "accuracy", "accuracy_change"):
        assert half[name] == achieved[name], name
    assert half["outputs/boxes_left/mse"] == 0.25
    assert (half["seconds"], half["steps"]) == (3.0, 150.0)
    assert "measured_latency_ms" not in half
    own = runs[None].data.metrics
    assert (own["goals"], own["goals_met"], own["seconds/training"]) == (2.0, 1.0, 7.25)
    assert (own["source/accuracy"], own["source/tuned_accuracy"]) == (0.8, 0.78)


def test_an_error_as_the_score_has_the_name_of_its_metric(tracked, service, job):
    half, tenth = job.goals
    goals = (replace(half, metric=Metric.MSE, accuracy=0.02), tenth)
    service.fake.job = replace(job, goals=goals)
    tracked.write()
    metrics = tracked.runs()["half"].data.metrics
    assert (metrics["mse"], "accuracy" in metrics) == (0.02, False)


def test_sentences_are_in_the_description_and_machines_in_tags(tracked, job):
    tracked.write()
    runs = tracked.runs()
    assert runs["tenth"].data.tags["mlflow.note.content"] == "no room"
    tags = runs["half"].data.tags
    sentences = tags["mlflow.note.content"].split("\n\n")
    assert sentences == ["Algorithm: as good as chamnet, and faster", "Note: int8 costs 1 point"]
    assert tags["mistify.latency_judged_by"] == "prediction"
    assert (tags["mistify.latency_machine"], tags["mistify.latency_runtime"]) == ("x86_64", "LiteRT 2.3.0")


def test_the_config_and_the_report_are_artifacts(tracked, job):
    tracked.write()
    place = f"{tracked.runs()[None].info.artifact_uri}/"
    assert load_text(f"{place}config.json") == CONFIG
    assert load_text(f"{place}report.html") == REPORT_PAGE.decode()
    assert json.loads(load_text(f"{place}report.json")) == json.loads(json.dumps(report(job)))


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (GoalState.WAITING, "SCHEDULED"),
        (GoalState.RUNNING, "RUNNING"),
        (GoalState.MET, "FINISHED"),
        (GoalState.UNMET, "FAILED"),
        (GoalState.FAILED, "FAILED"),
        (GoalState.CANCELLED, "KILLED"),
    ],
)
def test_the_status_of_a_run_is_that_of_the_goal(tracked, service, job, state, status):
    half, tenth = job.goals
    service.fake.job = replace(job, goals=(half, replace(tenth, state=state)))
    tracked.write()
    run = tracked.runs()["tenth"]
    assert (run.info.status, run.data.tags["mistify.state"]) == (status, state.value)


def event(sequence, goal, what):
    return JobEvent(sequence, 1_000_000 * sequence, goal, what)


EVENTS = [
    event(1, None, JobState.QUEUED),
    event(2, None, JobState.RUNNING),
    event(3, None, ProgressUpdate("tuning the source", 10, 20, loss=9.0)),
    event(4, "half", GoalState.RUNNING),
    event(5, "half", ProgressUpdate("starting", 0, 0)),
    event(6, "half", ProgressUpdate("adapting", 50, 100, loss=2.0, relative_costs={"flops": 1.5})),
    event(
        7,
        "half",
        ProgressUpdate("adapting", 100, 100, loss=1.5, accuracy=0.5, relative_costs={"flops": 1.0}),
    ),
    event(
        8, "half", ProgressUpdate("tuning", 20, 50, loss=1.0, structure_loss_weights={"latency_ms@pi": 1.0})
    ),
    event(9, "half", ProgressUpdate("tuning", 50, 50, loss=0.5, accuracy=0.75)),
    event(10, "half", GoalState.MET),
    event(11, None, JobState.DONE),
]


_POINTS = {"training/loss": 4, "validation/accuracy": 2, "cost/flops": 2}


def test_training_curves_have_the_steps_and_times_of_their_events(tracked, service, job):
    service.fake.events = EVENTS
    tracked.write()
    runs = tracked.runs()
    half = runs["half"]
    losses = [(50, 2.0, 6_000_000), (100, 1.5, 7_000_000), (120, 1.0, 8_000_000), (150, 0.5, 9_000_000)]
    assert tracked.history(half, "training/loss") == losses
    assert tracked.history(half, "validation/accuracy") == [(100, 0.5, 7_000_000), (150, 0.75, 9_000_000)]
    assert tracked.history(half, "cost/flops") == [(50, 1.5, 6_000_000), (100, 1.0, 7_000_000)]
    assert tracked.history(half, "weight/latency_ms.pi") == [(120, 1.0, 8_000_000)]
    assert (half.info.start_time, half.info.end_time) == (4_000_000, 10_000_000)
    assert (runs[None].info.start_time, runs[None].info.end_time) == (1_000_000, 11_000_000)
    assert "training/loss" not in runs[None].data.metrics


def test_writing_a_job_again_updates_it(tracked, service, job):
    half, tenth = job.goals
    service.fake.events = EVENTS[:7]
    unfinished = replace(
        half, state=GoalState.RUNNING, files=(), accuracy=None, achieved={}, output_scores=()
    )
    service.fake.job = replace(job, state=JobState.RUNNING, goals=(unfinished, tenth))
    tracked.write()
    before = tracked.runs()
    assert (before[None].info.status, before["half"].info.status) == ("RUNNING", "RUNNING")
    assert tracked.models() == []
    service.fake.events = EVENTS
    service.fake.job = replace(job, name="watches", tags=("team=audio",))
    tracked.write()
    again = tracked.runs()
    assert {goal: run.info.run_id for goal, run in again.items()} == {
        goal: run.info.run_id for goal, run in before.items()
    }
    assert (again[None].info.run_name, again[None].data.tags["team"]) == ("watches", "audio")
    assert (again[None].info.status, again["half"].info.status) == ("FINISHED", "FINISHED")
    assert again["half"].data.metrics["accuracy"] == 0.75
    assert [step for step, *_ in tracked.history(again["half"], "training/loss")] == [50, 100, 120, 150]


def test_writing_an_unchanged_job_again_adds_nothing(tracked, service, job):
    service.fake.events = EVENTS
    assert "model of half: models:/" in tracked.write().stdout
    before, models = tracked.runs(), tracked.models()
    assert "model of" not in tracked.write().stdout
    again = tracked.runs()
    assert [model.model_id for model in tracked.models()] == [models[0].model_id]
    for goal, run in before.items():
        assert again[goal].data.to_dictionary() == run.data.to_dictionary()
        assert again[goal].info.end_time == run.info.end_time
        for name in run.data.metrics:
            assert len(tracked.history(run, name)) == _POINTS.get(name, 1), name


def test_tags_that_a_job_no_longer_has_are_removed(tracked, service, job):
    tracked.write()
    service.fake.job = replace(job, tags=())
    tracked.write()
    tags = tracked.runs()[None].data.tags
    assert ("team" in tags, tags["mistify.tags"]) == (False, "")


def test_another_package_replaces_the_model(tracked, service, job, int8_package):
    tracked.write()
    (first,) = tracked.models()
    service.serve_package(int8_package)
    tracked.write()
    (second,) = tracked.models()
    manifest = (int8_package / "manifest.json").read_bytes()
    assert second.model_id != first.model_id
    assert second.tags["mistify.manifest_sha256"] == hashlib.sha256(manifest).hexdigest()


def test_a_damaged_package_is_named_after_all_others(tracked, service, job):
    service.fake.corrupt_downloads = 2
    result = tracked.write(code=ErrorCode.CORRUPT_PACKAGE.exit_code)
    assert "half: serve.tflite did not arrive" in result.stderr
    runs = tracked.runs()
    assert (runs["half"].data.metrics["accuracy"], runs["tenth"].info.status) == (0.75, "FAILED")
    assert tracked.models() == []


def test_the_job_of_an_output_directory_is_written_as_far_as_it_is_known(tracked, mistify, job, tmp_path):
    out = tmp_path / "out"
    assert mistify("fetch", "job-1", "--server", tracked.address, "--out", out).exit_code == 0
    tracked.write(out)
    runs = tracked.runs()
    assert (runs[None].info.run_name, runs["tenth"].info.status) == ("phones", "FAILED")
    assert runs["half"].data.metrics["accuracy"] == 0.75
    assert "seed" not in runs["half"].data.params
    assert len(tracked.models()) == 1
    saved = json.loads((out / "report.json").read_text())
    for part in (saved, *saved["goals"]):  # as earlier versions wrote it
        del part["state"]
    (out / "report.json").write_text(json.dumps(saved))
    tracked.write(out / "report.json")
    again = tracked.runs()
    assert [again[goal].info.status for goal in (None, "half", "tenth")] == ["FINISHED", "FINISHED", "FAILED"]


def test_models_of_others_stay_and_the_model_of_before_until_the_next_one_is_there(
    tracked, service, job, int8_package
):
    tracked.write()
    run_id = tracked.runs()["half"].info.run_id
    other = tracked.client.create_logged_model(tracked.experiment_id, name="mine", source_run_id=run_id)
    before = {model.model_id for model in tracked.models()}
    assert len(before) == 2
    service.serve_package(int8_package)
    service.fake.corrupt_downloads = 2
    tracked.write(code=ErrorCode.CORRUPT_PACKAGE.exit_code)
    assert before <= {model.model_id for model in tracked.models()}
    service.fake.corrupt_downloads = 0
    tracked.write()
    assert len(tracked.models()) == 2
    assert other.model_id in {model.model_id for model in tracked.models()}


def test_a_database_that_cannot_be_opened_is_reported(tracked, job, tmp_path, monkeypatch):
    from mlflow.store.db import utils

    monkeypatch.setattr(utils, "MAX_RETRY_COUNT", 0)  # of which MLflow has ten, within 100 s
    (tmp_path / "notes.txt").write_text("This is no database. " * 100)
    tracked.uri = f"sqlite:///{tmp_path}/notes.txt"
    stderr = tracked.write(code=ErrorCode.UNAVAILABLE.exit_code).stderr
    assert f"MLflow at {tracked.uri}" in stderr
    assert "file is not a database" in stderr


def test_a_deleted_experiment_is_reported(tracked, job):
    tracked.client.delete_experiment(tracked.client.create_experiment(tracked.experiment))
    result = tracked.write(code=ErrorCode.NOT_FOUND.exit_code)
    assert f'the experiment "{tracked.experiment}" is deleted in MLflow' in result.stderr


def test_targets_of_outputs_are_parameters(tracked, service, job):
    half, tenth = job.goals
    spec = replace(half.spec, targets=(Target("boxes", Metric.MSE, 0.02),))
    service.fake.job = replace(job, goals=(replace(half, spec=spec), tenth))
    tracked.write()
    assert tracked.runs()["half"].data.params["target/boxes/mse"] == "0.02"
