import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.jobs.job import GoalState, JobState
from mistify.v1 import porting_pb2 as pb
from tests.mistify_client.conftest import REPORT_PAGE
from tests.support.servers import killed_at_the_end
from tests.support.tokens import write_token

MISTIFY = Path(sys.executable).parent / "mistify"
CONFIG = [
    {
        "id": name,
        "model": "digits-resnet",
        "dataset": {"train": "train.npz", "test": "test.npz"},
        "adaptation_goal": {"FLOP": limit},
    }
    for name, limit in (("half", "0.5x"), ("tenth", "0.1x"))
]


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "goals.json"
    path.write_text(json.dumps(CONFIG))
    return path


@pytest.fixture
def port(mistify, config, service, tmp_path):
    return lambda *args: mistify(
        "port", config, "--out", tmp_path / "out", "--server", service.address, *args
    )


def all_met(service) -> None:
    goals = tuple(replace(goal, state=GoalState.MET) for goal in service.fake.job.goals)
    service.fake.job = replace(service.fake.job, goals=goals)


def keys(service) -> list[str]:
    return [request.idempotency_key for request in service.fake.requests_of(pb.SubmitBatchRequest)]


def test_the_version_is_printed(mistify):
    result = mistify("--version")
    assert (result.exit_code, result.output) == (0, f"{metadata.version('mistify-porting')}\n")


def test_port_fetches_packages_and_reports(service, port, config, tmp_path):
    result = port()
    out = tmp_path / "out"
    assert service.fake.requests_of(pb.SubmitBatchRequest)[0].config_json == config.read_text()
    package = out / "goals" / "half"
    assert {path.name: path.read_bytes() for path in package.iterdir()} == service.fake.files
    assert not (out / "goals" / "tenth").exists()
    assert json.loads((out / "report.json").read_text())["goals"][0]["id"] == "half"
    assert (out / "report.html").read_bytes() == REPORT_PAGE
    assert f"report: {out / 'report.html'}" in result.stdout
    assert "half: met, accuracy 75.0%" in result.stdout
    assert f"package: {package}" in result.stdout
    assert "source: tuning source 10/20" in result.stdout


def test_unmet_goals_have_their_own_exit_code(port):
    result = port()
    assert result.exit_code == 11
    assert "tenth is failed: no room" in result.stdout
    assert "1 of 2 goals is not met." in result.stdout


def test_a_precision_without_a_benefit_is_reported(service, port):
    half, tenth = service.fake.job.goals
    half = replace(half, note="as int8: not faster than in float32")
    service.fake.job = replace(service.fake.job, goals=(half, tenth))
    assert "\nhalf as int8: not faster than in float32\n" in port().stdout


def test_all_goals_met_is_success(service, port):
    all_met(service)
    result = port()
    assert result.exit_code == 0
    assert "All 2 goals are met." in result.stdout


def test_repeating_a_command_resumes_its_job(service, port, config):
    port()
    port()
    assert len(set(keys(service))) == 1
    config.write_text(json.dumps(CONFIG, indent=1))
    port()
    assert len(set(keys(service))) == 2


def test_packages_of_another_job_in_the_output_are_reported_and_kept(service, port, package, tmp_path):
    for name in ("half", "phones"):  # the first is a goal of this job as well
        shutil.copytree(package, tmp_path / "out" / "goals" / name)
    assert "keeps the packages of another job as they are: phones\n" in port().stdout
    assert (tmp_path / "out" / "goals" / "phones" / "manifest.json").exists()


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_a_failed_or_cancelled_job_is_started_again(service, port, state):
    port()
    service.fake.job = replace(service.fake.job, state=state)
    port()
    first, second, third = keys(service)
    assert first == second != third


def test_a_damaged_job_record_starts_a_new_job(service, port, tmp_path):
    port()
    (tmp_path / "out" / ".mistify-job.json").write_text("{")
    port()
    assert len(set(keys(service))) == 2


def test_a_failed_job_is_reported_with_the_reason(service, port):
    service.fake.job = replace(service.fake.job, state=JobState.FAILED, reason="the disk is full")
    result = port()
    assert result.exit_code == ErrorCode.INTERNAL.exit_code
    assert "The job failed: the disk is full" in result.stdout


def test_a_cancelled_job_is_reported(service, port):
    service.fake.job = replace(service.fake.job, state=JobState.CANCELLED)
    assert port().exit_code == ErrorCode.CANCELLED.exit_code


def test_all_problems_are_reported_before_anything_starts(service, port, config, tmp_path):
    config.write_text(json.dumps([{**CONFIG[0], "adaptation_goal": {"FLOP": "5 parsecs"}, "colour": 1}]))
    result = port()
    assert result.exit_code == 2
    assert "[0].adaptation_goal.FLOP" in result.stderr
    assert "[0].colour" in result.stderr
    assert [type(request) for request in service.fake.requests] == [pb.PlanRequest]
    assert not (tmp_path / "out").exists()


def test_missing_files_are_reported_together_with_mistakes(service, port, config):
    config.write_text(json.dumps([{**CONFIG[0], "colour": 1}]))
    mistake = Problem("[0].colour", 'the key "colour"', "no such key", "remove it")
    unknown = Problem("[0].model", '"resnt"', "a known model", "check the name")
    service.fake.error = MistifyError(ErrorCode.INVALID_CONFIG, "2 problems", [mistake, unknown])
    result = port()
    assert result.exit_code == 2
    assert str(unknown) in result.stderr
    assert "goals.json: 2 problems, nothing was started" in result.stderr


def test_mistakes_are_reported_without_a_server(service, port, config):
    config.write_text(json.dumps([{**CONFIG[0], "colour": 1}]))
    service.stop()
    result = port()
    assert result.exit_code == 2
    assert "[0].colour" in result.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file"), (b"{", "goals.json"), (b"\xff\xfe", "UTF-8"), (b"", "goals.json")],
)
def test_an_unreadable_config_is_reported(service, port, config, content, message):
    config.unlink()
    if content is not None:
        config.write_bytes(content)
    result = port()
    assert result.exit_code == 2
    assert message in result.stderr
    assert service.fake.requests == []


def test_a_directory_as_config_is_reported(mistify, service, tmp_path):
    result = mistify("port", tmp_path, "--out", tmp_path / "out", "--server", service.address)
    assert result.exit_code == 2
    assert "directory" in result.stderr


def test_a_file_as_output_directory_is_reported(service, port, tmp_path):
    (tmp_path / "out").write_text("mine")
    result = port()
    assert result.exit_code == 2
    assert "--out: got" in result.stderr
    assert service.fake.requests == []


def test_problems_found_by_the_server_keep_their_exit_code(service, port):
    problem = Problem("[0].model", '"resnt"', "a known model", 'did you mean "resnet"?')
    service.fake.error = MistifyError(ErrorCode.INVALID_MODEL, "1 problem", [problem])
    result = port()
    assert result.exit_code == 2
    assert str(problem) in result.stderr
    assert "Traceback" not in result.output


def test_a_missing_server_is_reported(service, port):
    service.stop()
    result = port()
    assert result.exit_code == ErrorCode.UNAVAILABLE.exit_code
    assert service.address in result.stderr
    assert "mistify-server serve" in result.stderr


def test_the_token_is_read_from_a_file(service, port, tmp_path):
    write_token(tmp_path / "token", "s3cret\n")
    port("--token-file", tmp_path / "token")
    assert service.fake.metadata[0]["authorization"] == "Bearer s3cret"
    assert port("--token-file", tmp_path / "none").exit_code == 2


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_can_be_resumed(service, config, tmp_path, signal_number):
    watching, released = threading.Event(), threading.Event()
    service.fake.watch_faults = [3]
    service.fake.on_fault = lambda context: (
        context.add_callback(released.set),
        watching.set(),
        released.wait(),
    )
    command = [MISTIFY, "port", config, "--out", tmp_path / "out", "--server", service.address]
    # A background shell may make the tests ignore SIGINT, and child processes inherit this.
    process = subprocess.Popen(
        ["env", "--default-signal=INT", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process, killed_at_the_end(process):
        assert watching.wait(60)
        process.send_signal(signal_number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert f"continues on {service.address}" in errors
    assert f"mistify port {config} --out" in errors
    all_met(service)
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 0
    assert len(set(keys(service))) == 1


@pytest.fixture
def add(mistify, config, service, tmp_path):
    config.write_text(json.dumps(CONFIG[:1]))
    return lambda *args: mistify(
        "add", "job-1", config, "--out", tmp_path / "out", "--server", service.address, *args
    )


@pytest.mark.parametrize("command", ["port", "add"])
def test_goals_likely_to_be_missed_are_reported_at_the_start_and_choices_at_the_end(request, command):
    lines = request.getfixturevalue(command)("--explain").output.splitlines()
    assert lines[1] == "half: accuracy 70.0% is likely to be missed"
    assert "half by morphnet: as good as chamnet, and faster" in lines


def test_add_waits_only_for_the_added_goals(service, add, config, tmp_path):
    service.fake.watch_faults = [5]  # `half` has ended, `tenth` and the job have not
    result = add()
    assert service.fake.requests[0].job_id == "job-1"
    assert service.fake.requests[0].config_json == config.read_text()
    assert len(service.fake.requests_of(pb.WatchJobRequest)) == 1
    package = tmp_path / "out" / "goals" / "half"
    assert {path.name: path.read_bytes() for path in package.iterdir()} == service.fake.files
    assert result.exit_code == 0
    assert "job job-1, 1 of 2 goals" in result.stdout
    assert "half: adapting 75/150" in result.stdout
    assert "The goal is met." in result.stdout
    assert "source: tuning" not in result.stdout
    assert "tenth is failed" not in result.stdout
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [goal["id"] for goal in report["goals"]] == ["half", "tenth"]


def test_an_unmet_added_goal_has_its_own_exit_code(service, add, config):
    config.write_text(json.dumps(CONFIG[1:]))
    result = add()
    assert result.exit_code == 11
    assert "tenth is failed: no room" in result.stdout
    assert "The goal is not met." in result.stdout
    assert service.fake.requests_of(pb.FetchPackageRequest) == []


def test_add_refuses_a_wrong_config_before_calling_the_server(service, add, config, tmp_path):
    config.write_text(json.dumps([{**CONFIG[0], "colour": 1}]))
    result = add()
    assert result.exit_code == 2
    assert "[0].colour" in result.stderr
    assert service.fake.requests == []
    assert not (tmp_path / "out").exists()


def test_add_does_not_change_the_record_of_the_ported_job(service, port, add, config):
    config.write_text(json.dumps(CONFIG))
    port()
    config.write_text(json.dumps(CONFIG[:1]))
    add()
    config.write_text(json.dumps(CONFIG))
    port()
    assert len(set(keys(service))) == 1


def test_add_with_an_embedded_server_uses_the_store_of_the_output(mistify, config, tmp_path):
    result = mistify("add", "20260101-000000-x", config, "--out", tmp_path / "out")
    assert result.exit_code == ErrorCode.NOT_FOUND.exit_code
    assert 'there is no job "20260101-000000-x"' in result.stderr
    assert (tmp_path / "out" / ".mistify" / "mistify.db").exists()


def test_the_server_can_be_set_in_the_environment(mistify, service, monkeypatch):
    monkeypatch.setenv("MISTIFY_SERVER", service.address)
    assert mistify("jobs").exit_code == 0


def test_run_writes_outputs_and_prints_the_latency(mistify, package, expected, tmp_path):
    np.save(tmp_path / "x.npy", expected["image"])
    result = mistify("run", package, "--input", tmp_path / "x.npy", "--output", tmp_path / "y")
    assert result.exit_code == 0
    assert "scores: float32 (3, 3)" in result.stdout
    assert "latency: " in result.stdout
    np.testing.assert_allclose(np.load(tmp_path / "y"), expected["scores"], atol=1e-6)


def test_run_supports_several_inputs_and_outputs(mistify, pair_package, expected, tmp_path):
    for name in ("left", "right"):
        np.save(tmp_path / f"{name}.npy", expected[name])
    inputs = ["--input", tmp_path / "left.npy", "--input", tmp_path / "right.npy"]
    assert mistify("run", pair_package, *inputs, "--output", tmp_path / "y.npz").exit_code == 0
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["mix"], expected["mix"], atol=1e-5)
    refused = mistify("run", pair_package, *inputs, "--output", tmp_path / "y.npy")
    assert refused.exit_code == 2
    assert "ends in .npz" in refused.stderr


def test_run_reports_mistakes(mistify, package, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((4, 4, 1), np.float32))
    np.savez(tmp_path / "x.npz", x=np.zeros(3))
    (tmp_path / "text").write_text("no array")
    for name, message in (
        ("x.npy", "numpy.newaxis"),
        ("x.npz", "an archive"),
        ("text", "cannot be used"),
        ("none", "No such file"),
    ):
        result = mistify("run", package, "--input", tmp_path / name)
        assert result.exit_code == 2
        assert message in result.stderr
    result = mistify("run", tmp_path, "--input", tmp_path / "x.npy")
    assert result.exit_code == ErrorCode.NOT_FOUND.exit_code
    assert "is not a package" in result.stderr


@pytest.mark.sampled
@pytest.mark.parametrize("by", ["option", "environment", "default"])
def test_an_embedded_server_reads_only_below_the_data_roots(mistify, config, tmp_path, monkeypatch, by):
    """The server refuses an unknown model and names the data roots that it searched."""
    roots = [tmp_path / "models", tmp_path / "data"]
    for root in roots:
        root.mkdir()
    options = [part for root in roots for part in ("--data-root", root)] if by == "option" else []
    if by == "environment":
        monkeypatch.setenv("MISTIFY_DATA_ROOT", os.pathsep.join(map(str, roots)))
    if by == "default":
        roots = [config.parent, Path.cwd()]
    config.write_text(json.dumps([{**CONFIG[0], "model": "models/none.keras"}]))
    result = mistify("port", config, "--out", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert "[0].model" in result.stderr
    assert ", ".join(map(str, roots)) in result.stderr


@pytest.mark.parametrize("command", ["adapt", "port", "monitor"])
def test_the_help_text_fills_the_width_of_the_terminal(mistify, command):
    """Every line of a paragraph except the last fills the width."""
    text = mistify(command, "--help").output.split("╭")[0]
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = [line.rstrip() for line in paragraph.splitlines()]
        for line, following in pairwise(lines):
            assert len(line) + len(following.split()[0]) > 135, paragraph
