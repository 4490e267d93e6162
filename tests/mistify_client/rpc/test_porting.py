import signal
import threading
from dataclasses import replace

import grpc
import pytest

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.jobs.job import JobState
from mistify.jobs.part import JobPart
from mistify.package.manifest import NETWORK
from mistify.v1 import porting_pb2 as pb
from mistify.wire import porting
from mistify_client.files import held_alone
from mistify_client.origin import ORIGIN, Origin
from mistify_client.rpc.porting import PortingClient
from tests.mistify_client.conftest import REPORT_PAGE
from tests.mistify_client.pools import make_elastic_package


@pytest.fixture
def client(service, backoff):
    with PortingClient(service.address, backoff=backoff) as client:
        yield client


def test_submit_sends_config_and_key(service, client):
    assert client.submit("[1]", "key") == service.fake.job
    (request,) = service.fake.requests
    assert (request.config_json, request.idempotency_key) == ("[1]", "key")
    assert client.submit("[1]", "key").id == "job-1"
    assert client.submit("[1]", "another").id == "job-2"


def test_add_goals_sends_the_job_the_config_and_its_own_key(service, client):
    assert client.add_goals("job-1", "[1]") == service.fake.job
    for again in ("[1]", "[2]"):
        client.add_goals("job-1", again)
    first, same, other = service.fake.requests
    assert (first.job_id, first.config_json) == ("job-1", "[1]")
    assert same == first
    assert other.idempotency_key != first.idempotency_key != ""


def test_jobs_are_returned_listed_and_cancelled(service, client):
    assert client.job("job-1") == service.fake.job
    assert [part.job.id for part in client.jobs()] == ["job-1", "job-2", "job-3"]
    assert client.cancel("job-1").state is JobState.CANCELLED


def test_a_job_is_assembled_from_pages(service, client):
    service.fake.page = 1
    whole = service.fake.job
    assert client.job("job-1") == whole
    assert [request.goals.page_token for request in service.fake.requests] == ["", "1"]
    assert client.add_goals("job-1", "[1]") == whole
    assert client.submit("[1]", "key") == whole
    assert client.with_goal("job-1", "tenth")[1] == whole.goals[1]


def test_an_unanswered_cancel_is_repeated(service, client):
    service.fake.unanswered = 2
    assert client.cancel("job-1").state is JobState.CANCELLED
    assert len(service.fake.requests) == 3


def test_the_error_of_a_never_answered_cancel_says_that_it_may_have_succeeded(service, client):
    service.fake.unanswered = 99
    with pytest.raises(MistifyError, match="may or may not") as caught:
        client.cancel("job-1")
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_removing_a_job_returns_the_freed_bytes(service, client):
    assert client.remove_now("job-1") == 2_000_000
    assert service.fake.requests == [pb.RemoveJobRequest(job_id="job-1", now=True)]


def test_names_and_tags_are_changed_separately(service, client):
    client.rename("job-1", "")
    client.tag("job-1", [])
    client.tag("job-1", ["x"])
    name, none, one = service.fake.requests
    assert (name.HasField("name"), name.HasField("tags")) == (True, False)
    assert (none.HasField("name"), none.HasField("tags")) == (False, True)
    assert list(one.tags.tags) == ["x"]


def test_a_token_is_sent_as_a_bearer_token(service):
    with PortingClient(service.address, token="s3cret") as client:  # noqa: S106
        client.job("job-1")
    assert service.fake.metadata[0]["authorization"] == "Bearer s3cret"


def test_without_a_token_no_authorization_is_sent(service, client):
    client.job("job-1")
    assert "authorization" not in service.fake.metadata[0]


def test_server_errors_arrive_completely(service, client):
    problem = Problem("[0].model", '"resnt"', "a known model", 'did you mean "resnet"?')
    service.fake.error = MistifyError(ErrorCode.INVALID_MODEL, "1 problem", [problem])
    with pytest.raises(MistifyError) as caught:
        client.submit("[]", "key")
    assert caught.value.code is ErrorCode.INVALID_MODEL
    assert caught.value.message == "1 problem"
    assert caught.value.problems == (problem,)


def test_the_error_without_a_server_says_how_to_start_one(service, client, waits):
    service.stop()
    with pytest.raises(MistifyError) as caught:
        client.submit("[]", "key")
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert service.address in caught.value.message
    assert "mistify-server serve" in caught.value.message
    assert waits.delays == []


def test_a_request_waits_for_an_unreachable_server(service, client, waits):
    service.stop()
    waits.real = True
    waits.then = lambda: service.start() if len(waits.delays) == 2 else None
    assert client.job("job-1").id == "job-1"
    assert len(waits.delays) >= 2


def test_watch_starts_at_a_sequence_number(service, client):
    assert list(client.watch("job-1")) == service.fake.events
    assert list(client.watch("job-1", after_sequence=4)) == service.fake.events[4:]


def test_past_events_can_be_requested(service, client):
    assert list(client.watch("job-1", so_far=True)) == service.fake.events
    assert [request.so_far for request in service.fake.requests_of(pb.WatchJobRequest)] == [True]


def test_events_may_come_together(service, client, monkeypatch):
    def together(fake, request, context):
        assert request.grouped
        yield porting.events_to_proto(fake.events[request.after_sequence : 4])
        yield porting.events_to_proto(fake.events[4:])

    monkeypatch.setattr(type(service.fake), "WatchJob", together)
    assert list(client.watch("job-1")) == service.fake.events


def test_watch_resumes_where_the_connection_broke(service, client, waits):
    service.fake.watch_faults = [2, 0, 3]
    assert list(client.watch("job-1")) == service.fake.events
    requests = service.fake.requests_of(pb.WatchJobRequest)
    assert [request.after_sequence for request in requests] == [0, 2, 2, 5]
    assert len(waits.delays) == 3


def test_watch_survives_a_restart_of_the_server(service, client, waits):
    streaming, gone = threading.Event(), threading.Event()

    def hang(context: grpc.ServicerContext) -> None:
        context.add_callback(gone.set)
        streaming.set()
        gone.wait()

    service.fake.watch_faults = [3]
    service.fake.on_fault = hang
    killer = threading.Thread(target=lambda: (streaming.wait(), service.stop()))
    killer.start()
    waits.real = True
    waits.then = lambda: (killer.join(), service.start()) if len(waits.delays) == 1 else None
    assert list(client.watch("job-1")) == service.fake.events
    assert waits.delays


def test_an_error_arrives_with_a_thousand_problems(service, client):
    problems = [
        Problem(f"[{number}].adaptation_goal.FLOP", '"5Q"', "a count such as 5M", "correct the unit")
        for number in range(1000)
    ]
    service.fake.error = MistifyError(ErrorCode.INVALID_CONFIG, "1000 problems", problems)
    with pytest.raises(MistifyError) as caught:
        client.submit("[]", "key")
    assert caught.value.problems == tuple(problems)


def test_watch_ends_with_the_error_of_the_server(service, client, waits):
    service.fake.error = MistifyError(ErrorCode.NOT_FOUND, "there is no job 'job-9'")
    with pytest.raises(MistifyError, match="job-9"):
        list(client.watch("job-9"))
    assert waits.delays == []


def test_leaving_a_watch_ends_it_on_the_server(service, client):
    ended = threading.Event()
    service.fake.watch_faults = [0]
    service.fake.on_fault = lambda context: context.add_callback(ended.set)
    events = client.watch("job-1")
    next(events)
    events.close()
    assert ended.wait(30)


def test_fetch_downloads_every_file(service, client, tmp_path):
    goal = client.fetch("job-1", "half", tmp_path / "half")
    assert goal.id == "half"
    assert {path.name: path.read_bytes() for path in (tmp_path / "half").iterdir()} == service.fake.files


def test_fetch_downloads_only_selected_files(service, client, tmp_path):
    client.fetch("job-1", "half", tmp_path, only=["manifest.json"])
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    assert [request.file for request in service.fake.requests_of(pb.FetchPackageRequest)] == ["manifest.json"]


def test_bytes_are_counted(service, client, tmp_path):
    client.fetch("job-1", "half", tmp_path, only=["serve.tflite"])
    data = len(service.fake.files["serve.tflite"])
    whole = service.fake.job
    job = porting.part_to_proto(JobPart(replace(whole, goals=whole.goals[:1]), 2, 1)).ByteSize()
    assert client.traffic.sent == sum(request.ByteSize() for request in service.fake.requests)
    assert 0 < client.traffic.received - data - job < 0.02 * data  # framing of the chunks


def test_fetch_resumes_where_the_connection_broke(service, client, tmp_path):
    service.fake.fetch_faults = [3, 0, 2]
    client.fetch("job-1", "half", tmp_path)
    assert (tmp_path / "serve.tflite").read_bytes() == service.fake.files["serve.tflite"]
    offsets = [request.offset for request in service.fake.requests_of(pb.FetchPackageRequest)]
    assert offsets[:4] == [0, 3 * 1024, 3 * 1024, 5 * 1024]


def test_fetch_resumes_an_earlier_download(service, client, tmp_path, backoff):
    service.fake.fetch_faults = [4] + [0] * (backoff.attempts + 1)
    with pytest.raises(MistifyError):
        client.fetch("job-1", "half", tmp_path)
    assert (tmp_path / "serve.tflite.part").stat().st_size == 4 * 1024
    service.fake.fetch_faults.clear()
    service.fake.requests.clear()
    client.fetch("job-1", "half", tmp_path)
    assert service.fake.requests_of(pb.FetchPackageRequest)[0].offset == 4 * 1024
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "serve.tflite"]


def test_fetch_refuses_an_unknown_goal_and_one_without_a_package(client, tmp_path):
    with pytest.raises(MistifyError, match="has no goal") as unknown:
        client.fetch("job-1", "third", tmp_path)
    with pytest.raises(MistifyError, match="failed and has no package: no room") as failed:
        client.fetch("job-1", "tenth", tmp_path)
    assert {unknown.value.code, failed.value.code} == {ErrorCode.NOT_FOUND}


def test_an_origin_file_in_a_package_is_ignored(service, client, tmp_path):
    package = make_elastic_package(tmp_path / "package")
    (package / ORIGIN).write_text("{}")
    service.serve_package(package)
    with pytest.raises(MistifyError, match="not a plain file name"):
        client.fetch_without_blocks("job-1", "half", tmp_path / "device")
    assert not (tmp_path / "device" / ORIGIN).exists()


def test_the_origin_is_written_after_the_last_file(service, client, tmp_path):
    service.serve_package(make_elastic_package(tmp_path / "package"))
    service.fake.files[NETWORK] = b"other than described"
    with pytest.raises(MistifyError) as caught:
        client.fetch_without_blocks("job-1", "half", tmp_path / "device")
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    assert not (tmp_path / "device" / ORIGIN).exists()


def test_the_origin_is_written_by_one_process_at_a_time(service, client, tmp_path, monkeypatch):
    service.serve_package(make_elastic_package(tmp_path / "package"))
    save, held = Origin.save, []

    def noted(origin, directory):
        with pytest.raises(MistifyError) as caught, held_alone(directory, "a package is being fetched"):
            pass
        held.append(caught.value.code)
        save(origin, directory)

    monkeypatch.setattr(Origin, "save", noted)
    client.fetch_without_blocks("job-1", "half", tmp_path / "device")
    assert held == [ErrorCode.CONFLICT]


def test_fetch_repairs_a_corrupt_download(service, client, tmp_path):
    service.fake.corrupt_downloads = 1
    client.fetch("job-1", "half", tmp_path)
    assert (tmp_path / "serve.tflite").read_bytes() == service.fake.files["serve.tflite"]


def test_fetch_refuses_a_package_that_stays_corrupt(service, client, tmp_path):
    service.fake.corrupt_downloads = 2
    with pytest.raises(MistifyError) as caught:
        client.fetch("job-1", "half", tmp_path)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_report_is_requested_again(service, client):
    """The report may have changed meanwhile, so its parts are not combined."""
    service.fake.report_faults = [3, 0]
    assert client.report_page("job-1") == REPORT_PAGE
    assert len(service.fake.requests_of(pb.FetchReportRequest)) == 3
    with pytest.raises(MistifyError) as caught:
        client.report_page("job-9")
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_an_unknown_failure_is_an_internal_error(service, client):
    service.fake.job = None
    with pytest.raises(MistifyError, match="UNKNOWN") as caught:
        client.job("job-1")
    assert caught.value.code is ErrorCode.INTERNAL


def test_a_signal_delivered_to_another_thread_ends_the_wait(service, client):
    released, done, in_time = threading.Event(), threading.Event(), []

    def interrupt(context: grpc.ServicerContext) -> None:
        context.add_callback(released.set)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        in_time.append(released.wait(60))
        done.set()

    service.fake.watch_faults, service.fake.on_fault = [3], interrupt
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(client.watch("job-1"))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert done.wait(60)
    assert in_time == [True]


def test_the_config_is_returned_as_it_was_submitted(service, client):
    service.fake.config = '[{"id": "half"}] // as written'
    assert client.config("job-1") == service.fake.config
    assert service.fake.requests == [pb.GetConfigRequest(job_id="job-1")]


@pytest.mark.parametrize(
    ("position", "sent"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", True),
        ("\N{GREEK SMALL LETTER ALPHA}", False),
        ("", False),
    ],
)
def test_a_trace_in_the_environment_is_sent(service, monkeypatch, position, sent):
    monkeypatch.setenv("TRACEPARENT", position)
    with PortingClient(service.address) as client:
        client.job("job-1")
    (metadata,) = service.fake.metadata
    assert metadata.get("traceparent") == (position if sent else None)
