import json
from contextlib import contextmanager
from dataclasses import replace

import pytest

from mistify.jobs.job import JobState
from mistify.v1 import porting_pb2 as pb
from mistify_client.cli.serving import Serving
from mistify_client.cli.session import add_goals, port_goals
from mistify_client.porting.submission import SUBMISSION, attach
from mistify_client.rpc.porting import PortingClient
from mistify_client.rpc.retry import Backoff


def test_a_power_cut_does_not_lose_the_job(service, tmp_path, synced):
    """Both the file with the key and its directory entry have been synced."""
    with PortingClient(service.address) as client:
        attach(client, "[1]", tmp_path, service.address)
    assert synced == [path.stat().st_ino for path in (tmp_path / SUBMISSION, tmp_path)]


@pytest.fixture
def serving(service, tmp_path):
    """Return a server for one command, whose calls go to the fake."""

    class ForOneCommand(Serving):
        @contextmanager
        def started(self, **_):
            yield service.address, None, Backoff()

    return ForOneCommand(None, None, tmp_path / "store", [tmp_path])


@pytest.fixture
def out(tmp_path):
    (directory := tmp_path / "out").mkdir()
    return directory


@pytest.fixture
def config(tmp_path):
    (tmp_path / "model.keras").write_bytes(b"first")
    return json.dumps([{"id": "half", "model": "model.keras", "adaptation_goal": {"FLOP": "0.5x"}}])


def sent(service, kind):
    return service.fake.requests_of(kind)


def test_a_model_that_was_trained_again_under_the_same_name_is_ported_again(
    service, serving, config, out, tmp_path
):
    for content in (b"first", b"first", b"second"):
        (tmp_path / "model.keras").write_bytes(content)
        port_goals(config, out, serving)
    first, again, other = (request.idempotency_key for request in sent(service, pb.SubmitBatchRequest))
    assert first == again != other
    assert {request.config_json for request in sent(service, pb.SubmitBatchRequest)} == {config}


def test_a_record_of_an_earlier_version_is_of_the_same_job(service, serving, config, out):
    port_goals(config, out, serving)
    record = json.loads((out / SUBMISSION).read_text())
    del record["content_sha256"]
    (out / SUBMISSION).write_text(json.dumps(record))
    port_goals(config, out, serving)
    assert len({request.idempotency_key for request in sent(service, pb.SubmitBatchRequest)}) == 1


def test_an_unreadable_file_is_left_to_the_server(service, serving, config, out, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path)
    text = config.replace("model.keras", "data")
    port_goals(text, out, serving)
    assert [request.config_json for request in sent(service, pb.SubmitBatchRequest)] == [text]


@pytest.fixture
def commands(config, out, serving):
    return {
        "port": lambda: port_goals(config, out, serving),
        "add": lambda: add_goals("job-1", config, ["half"], out, serving),
    }


@pytest.mark.parametrize("command", ["port", "add"])
def test_unfinished_jobs_of_earlier_commands_do_not_slow_a_command_down(service, commands, capsys, command):
    service.fake.job = replace(service.fake.job, state=JobState.RUNNING)
    commands[command]()
    assert [request.job_id for request in sent(service, pb.PauseJobRequest)] == ["job-2", "job-3"]
    assert "paused until their commands are repeated, unfinished: job-2 and job-3" in capsys.readouterr().out


def test_repeating_a_command_continues_its_paused_job(service, serving, config, out):
    service.fake.job = replace(service.fake.job, state=JobState.PAUSED)
    port_goals(config, out, serving)
    assert [request.job_id for request in sent(service, pb.ResumeJobRequest)] == ["job-1"]
    assert not sent(service, pb.PauseJobRequest)


def test_jobs_on_a_shared_server_are_not_paused(service, config, out, tmp_path):
    service.fake.job = replace(service.fake.job, state=JobState.RUNNING)
    port_goals(config, out, Serving(service.address, None, tmp_path / "store", []))
    assert not sent(service, pb.PauseJobRequest)
