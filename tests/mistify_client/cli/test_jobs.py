"""Commands for jobs on a server."""

import json
from dataclasses import replace

from mistify.errors import ErrorCode
from mistify.jobs.job import GoalState, JobPriority, JobState
from mistify.package.blocks import BlockStore
from mistify.v1 import porting_pb2 as pb
from mistify_client.origin import ORIGIN, Origin, token_file_for
from mistify_client.runtime.versions import state_directory
from tests.mistify_client.conftest import REPORT_PAGE
from tests.mistify_client.pools import make_elastic_package


def test_jobs_lists_every_page(mistify, service):
    result = mistify("jobs", "--server", service.address)
    assert result.exit_code == 0
    assert all(name in result.stdout for name in ("job-1", "job-2", "job-3", "done", "1/2", "2023-11-14"))


def test_jobs_that_the_server_cannot_read_are_logged(mistify, service, caplog):
    reason = "the job job-0 was written by another version; upgrade this server"
    service.fake.unreadable = [pb.UnreadableJob(id="job-0", reason=reason)]
    result = mistify("jobs", "--server", service.address)
    assert (result.exit_code, "job-3" in result.stdout) == (0, True)
    assert caplog.messages == [reason]


def test_the_list_of_jobs_fits_80_columns(mistify, service, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = mistify("jobs", "--server", service.address).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "created (UTC)" in lines[0]
    assert lines[2].split() == ["job-1", "done", "2023-11-14", "22:13:20", "1/2"]


def test_a_job_is_shown_with_its_log_and_its_goals(mistify, service):
    result = mistify("jobs", "job-1", "--server", service.address, "--explain")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "1970-01-01 00:00:01 job running"
    assert "1970-01-01 00:00:04 half: adapting 75/150, accuracy 78.0%, multiply-adds 70%" in lines
    assert "1970-01-01 00:00:05 half: met, accuracy 75.0%" in result.stdout
    assert "multiply-adds" in result.stdout
    assert "480 (0.48)" in result.stdout
    assert "tenth is failed: no room" in lines
    assert "half by morphnet: as good as chamnet, and faster" in lines
    assert lines[-1] == "job job-1, submitted 2023-11-14 22:13:20 UTC, is done"
    assert [request.so_far for request in service.fake.requests_of(pb.WatchJobRequest)] == [True]


def test_a_running_job_is_shown_with_its_warnings(mistify, service):
    half, tenth = service.fake.job.goals
    goals = (replace(half, state=GoalState.RUNNING), replace(tenth, state=GoalState.WAITING, reason=""))
    service.fake.job = replace(service.fake.job, goals=goals, state=JobState.RUNNING)
    service.fake.events = service.fake.events[:4]
    lines = mistify("jobs", "job-1", "--server", service.address).stdout.splitlines()
    assert "half: accuracy 70.0% is likely to be missed" in lines
    assert lines[-1].endswith("is running")
    assert not any(line.startswith("tenth is") for line in lines)


def test_a_failed_job_is_shown_with_the_reason(mistify, service):
    service.fake.job = replace(service.fake.job, state=JobState.FAILED, reason="the disk is full")
    result = mistify("jobs", "job-1", "--server", service.address)
    assert result.stdout.endswith("is failed: the disk is full\n")


def test_an_unknown_job_is_an_error(mistify, service):
    for command in ("jobs", "fetch"):
        result = mistify(command, "job-9", "--server", service.address)
        assert result.exit_code == ErrorCode.NOT_FOUND.exit_code
        assert "job-9" in result.stderr


def test_fetch_downloads_every_package(mistify, service, tmp_path):
    half, tenth = service.fake.job.goals
    other = replace(half, id="other")
    service.fake.job = replace(service.fake.job, goals=(half, tenth, other))
    result = mistify("fetch", "job-1", "--server", service.address, "--out", tmp_path)
    assert result.exit_code == 0
    for goal in ("half", "other"):
        package = tmp_path / "goals" / goal
        assert {path.name: path.read_bytes() for path in package.iterdir()} == service.fake.files
        assert f"package: {package}" in result.stdout
    assert not (tmp_path / "goals" / "tenth").exists()
    assert (tmp_path / "report.html").read_bytes() == REPORT_PAGE
    assert f"report: {tmp_path / 'report.html'}" in result.stdout
    reported = json.loads((tmp_path / "report.json").read_text())
    assert [goal["id"] for goal in reported["goals"]] == ["half", "tenth", "other"]


def test_fetch_of_one_goal_creates_a_directory_for_the_job(mistify, service, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert mistify("fetch", "job-1", "half", "--server", service.address).exit_code == 0
    assert (tmp_path / "job-1" / "goals" / "half" / "serve.tflite").is_file()
    assert not (tmp_path / "job-1" / "report.html").exists()


def test_fetch_without_blocks_records_where_to_download_them(mistify, service, tmp_path):
    package = make_elastic_package(tmp_path / "package")
    service.serve_package(package)
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o600)
    arguments = ["--server", service.address, "--out", tmp_path / "out", "--token-file", token]
    assert mistify("fetch", "job-1", "half", "--without-blocks", *arguments).exit_code == 0
    fetched = tmp_path / "out" / "goals" / "half"
    blocks = {variant.file for variant in BlockStore.load(package).variants}
    assert {path.name for path in package.iterdir()} - blocks == {path.name for path in fetched.iterdir()} - {
        ORIGIN
    }
    assert Origin.load(fetched) == Origin(server=service.address, job="job-1", goal="half")
    assert str(token) not in (fetched / ORIGIN).read_text()
    assert token_file_for(state_directory(fetched), service.address) == token


def test_fetch_refuses_a_corrupt_download(mistify, service, tmp_path):
    service.fake.corrupt_downloads = 2
    result = mistify("fetch", "job-1", "--server", service.address, "--out", tmp_path)
    assert result.exit_code == ErrorCode.CORRUPT_PACKAGE.exit_code
    assert not (tmp_path / "goals" / "half" / "serve.tflite").exists()


def test_fetch_downloads_all_packages_except_damaged_ones(mistify, service, tmp_path):
    half, tenth = service.fake.job.goals
    service.fake.job = replace(service.fake.job, goals=(half, tenth, replace(half, id="other")))
    service.fake.corrupt_downloads = 2
    result = mistify("fetch", "job-1", "--server", service.address, "--out", tmp_path)
    assert result.exit_code == ErrorCode.CORRUPT_PACKAGE.exit_code
    assert "half: serve.tflite" in result.stderr
    assert "\n  other: " not in result.stderr
    assert {path.name for path in (tmp_path / "goals" / "other").iterdir()} == set(service.fake.files)
    assert (tmp_path / "report.json").exists()
    again = mistify("fetch", "job-1", "--server", service.address, "--out", tmp_path)
    assert again.exit_code == 0
    assert (tmp_path / "goals" / "half" / "serve.tflite").exists()


def test_fetch_without_any_package_reports_it_and_creates_no_files(mistify, service, tmp_path):
    result = mistify("fetch", "job-1", "tenth", "--server", service.address, "--out", tmp_path / "out")
    assert result.exit_code == ErrorCode.NOT_FOUND.exit_code
    assert "no room" in result.stderr
    service.fake.job = replace(service.fake.job, goals=service.fake.job.goals[1:])
    result = mistify("fetch", "job-1", "--server", service.address, "--out", tmp_path / "out")
    assert result.exit_code == ErrorCode.NOT_FOUND.exit_code
    assert "mistify jobs job-1" in result.stderr
    assert not (tmp_path / "out").exists()


def test_remove_can_be_undone_unless_it_is_at_once(mistify, service):
    result = mistify("remove", "job-1", "--server", service.address)
    assert (result.exit_code, result.stdout) == (
        0,
        "removed job-1; until 1970-01-02 00:00:00 UTC, this command undoes it: mistify restore job-1\n",
    )
    result = mistify("restore", "job-1", "--server", service.address)
    assert (result.exit_code, result.stdout) == (0, "restored job-1\n")
    result = mistify("remove", "job-1", "--now", "--server", service.address)
    assert (result.exit_code, result.stdout) == (0, "removed job-1, freed 2MB\n")
    assert [type(request).__name__ for request in service.fake.requests] == [
        "RemoveJobRequest",
        "RestoreJobRequest",
        "RemoveJobRequest",
    ]


def test_jobs_lists_tags_and_removed_jobs(mistify, service):
    service.fake.job = replace(service.fake.job, tags=("team=vision", "urgent"), removed_unix_ms=86_400_000)
    result = mistify("jobs", "--search", "tag:urgent", "--removed", "--server", service.address)
    assert "team=vision urgent" in result.stdout
    assert "1970-01-02" in result.stdout
    (first, *_) = service.fake.requests
    assert (first.search, first.removed) == ("tag:urgent", True)


def test_tag_replaces_the_tags_of_a_job(mistify, service):
    assert mistify("tag", "job-1", "a", "b", "--server", service.address).exit_code == 0
    assert list(service.fake.requests[0].tags.tags) == ["a", "b"]


def test_cancel_stops_a_job(mistify, service):
    result = mistify("cancel", "job-1", "--server", service.address)
    assert result.stdout == "job job-1 is cancelled\n"
    assert [request.job_id for request in service.fake.requests_of(pb.CancelJobRequest)] == ["job-1"]


def test_pause_and_resume_say_what_became_of_the_job(mistify, service):
    service.fake.job = replace(service.fake.job, state=JobState.RUNNING)
    result = mistify("pause", "job-1", "--server", service.address)
    assert (result.exit_code, result.stdout) == (0, "job job-1 is paused\n")
    result = mistify("resume", "job-1", "--server", service.address)
    assert (result.exit_code, result.stdout) == (0, "job job-1 is running\n")
    assert [type(request).__name__ for request in service.fake.requests] == [
        "PauseJobRequest",
        "ResumeJobRequest",
    ]


def test_a_job_that_has_ended_is_not_paused(mistify, service):
    result = mistify("pause", "job-1", "--server", service.address)
    assert (result.exit_code, result.stdout) == (0, "job job-1 had already ended: done\n")


def test_the_priority_of_a_job_is_changed_and_listed(mistify, service):
    assert mistify("prioritize", "job-1", "high", "--server", service.address).exit_code == 0
    (request,) = service.fake.requests
    assert (request.priority, request.HasField("name")) == (pb.JOB_PRIORITY_HIGH, False)
    assert mistify("prioritize", "job-1", "urgent", "--server", service.address).exit_code == 2
    assert "priority" not in mistify("jobs", "--server", service.address).stdout
    service.fake.job = replace(service.fake.job, priority=JobPriority.LOW)
    assert "low" not in mistify("jobs", "--server", service.address).stdout  # it has ended
    service.fake.job = replace(service.fake.job, state=JobState.RUNNING)
    assert "low" in mistify("jobs", "--server", service.address).stdout
