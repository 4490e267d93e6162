"""A server that is away or refuses, downloads that are corrupt, disks that are full."""

import socket
from contextlib import ExitStack

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.monitor.replacement.candidate import Trial
from mistify_client.monitor.replacement.ledger import Phase
from mistify_client.runtime.versions import current
from tests.mistify_client.conftest import serve
from tests.mistify_client.monitor.adapting import held
from tests.support.disks import files_limited_to
from tests.support.tokens import write_token


def test_the_server_is_away_at_first(site, service):
    with socket.socket() as reservation:  # nobody else gets the port, and the server shares it
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reservation.getsockname()[1]}"
        site.ask(server=address)
        assert "no server answers" in site.entries.until(event="problem")["reason"]
        late, _ = serve(service.fake, address, reserved=True)
        try:
            site.entries.until(event="recovered")
            site.until("probation")
        finally:
            late.stop(None).wait()


@pytest.mark.parametrize(("call", "phase"), [("WatchJob", "adapting"), ("FetchPackage", "downloading")])
def test_the_server_goes_away_in_between(site, service, call, phase):
    with held(service.fake, call):
        site.ask()
        site.until(phase)
        service.stop()
        site.entries.until(event="problem")
    service.start()
    site.until("probation")


def test_a_token_that_is_refused_may_be_fixed(site, service, tmp_path):
    write_token(tmp_path / "token", "wrong")
    service.fake.error = MistifyError(ErrorCode.UNAUTHENTICATED, "the token is wrong")
    site.ask(token_file=tmp_path / "token")
    assert "the token is wrong" in site.entries.until(event="problem")["reason"]
    write_token(tmp_path / "token", "right")
    service.fake.error = None
    site.until("probation")
    sent = [dict(metadata)["authorization"] for metadata in service.fake.metadata]
    assert (sent[0], sent[-1]) == ("Bearer wrong", "Bearer right")


def test_a_token_that_is_not_there_for_a_moment_is_waited_for(site, tmp_path):
    site.ask(token_file=tmp_path / "token")
    problem = site.entries.until(event="problem")["reason"]
    assert problem.startswith("the token cannot be read")
    assert str(tmp_path / "token") in problem
    write_token(tmp_path / "token", "right")
    site.until("probation")


def test_a_goal_that_the_server_refuses_is_given_up(site, service):
    service.fake.error = MistifyError(ErrorCode.INVALID_CONFIG, "no such model")
    site.ask()
    assert "no such model" in site.until("rejected")["reason"]


def test_a_download_that_stays_corrupt_changes_nothing(site, service, package):
    service.fake.corrupt_downloads = 2
    site.ask()
    assert "did not arrive as the server described it" in site.until("rejected")["reason"]
    assert current(package) == package
    assert not site.state.candidate.exists()


def test_a_download_that_is_corrupt_once_is_repaired(site, service):
    service.fake.corrupt_downloads = 1
    site.ask()
    site.until("probation")


def test_a_full_disk_during_the_download(site, service, package):
    with ExitStack() as full_disk:
        with held(service.fake, "WatchJob"):  # by then the server, in the same process, has made its files
            site.ask()
            site.until("adapting")
            size = (site.package / "serve.tflite").stat().st_size
            full_disk.enter_context(files_limited_to(size // 2))
        assert "File too large" in site.entries.until(event="problem")["reason"]
        assert current(package) == package
    site.until("probation")


def test_a_full_disk_during_the_swap(site, package):
    """Files larger than a limit cannot be written: the network's copy is, the ledger and log are not."""
    network = (site.package / "serve.tflite").stat().st_size
    assert network > 2000

    def tried(*paths):
        limit.__enter__()
        return Trial(0.1, 1.0, None)

    limit = files_limited_to(2000)
    site.ask(run_trial=tried)
    try:
        assert "too large" in site.entries.until(event="problem")["reason"]
        assert site.background.replacement.phase is Phase.INSTALLING
        assert current(package) == package
    finally:
        limit.__exit__(None, None, None)
    site.until("probation")
    assert site.goal == site.background.replacement.goal
