"""Unreachable and refusing servers, corrupt downloads, and full disks."""

from contextlib import ExitStack
from errno import EIO, ENOSPC

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.monitor.installed import take_back
from mistify_client.monitor.replacement.access import MOST_ATTEMPTS
from mistify_client.monitor.replacement.candidate import Trial
from mistify_client.monitor.replacement.ledger import Phase
from mistify_client.runtime.versions import current
from tests.mistify_client.conftest import serve
from tests.mistify_client.monitor.adapting import held
from tests.mistify_client.monitor.replacement.conftest import on_probation
from tests.support.disks import files_limited_to
from tests.support.ports import reserved_address
from tests.support.tokens import write_token


def test_a_server_may_be_unreachable_at_first(site, service):
    with reserved_address() as address:
        site.ask(server=address)
        assert "no server answers" in site.entries.until(event="problem")["reason"]
        late = serve(service.fake, address)
        try:
            site.entries.until(event="recovered")
            site.until("probation")
        finally:
            late.stop(None).wait()


@pytest.mark.parametrize(("call", "phase"), [("WatchJob", "adapting"), ("FetchPackage", "downloading")])
def test_a_server_may_be_unreachable_in_between(site, service, call, phase):
    with held(service.fake, call):
        site.ask()
        site.until(phase)
        service.stop()
        site.entries.until(event="problem")
    service.start()
    site.until("probation")


def test_a_refused_token_can_be_corrected(site, service, tmp_path):
    write_token(tmp_path / "token", "wrong")
    service.fake.error = MistifyError(ErrorCode.UNAUTHENTICATED, "the token is wrong")
    site.ask(token_file=tmp_path / "token")
    assert "the token is wrong" in site.entries.until(event="problem")["reason"]
    write_token(tmp_path / "token", "right")
    service.fake.error = None
    site.until("probation")
    sent = [dict(metadata)["authorization"] for metadata in service.fake.metadata]
    assert (sent[0], sent[-1]) == ("Bearer wrong", "Bearer right")


def test_a_temporarily_missing_token_is_awaited(site, tmp_path):
    site.ask(token_file=tmp_path / "token")
    problem = site.entries.until(event="problem")["reason"]
    assert problem.startswith("the token cannot be read")
    assert str(tmp_path / "token") in problem
    write_token(tmp_path / "token", "right")
    site.until("probation")


@pytest.mark.parametrize(
    "trouble",
    [MistifyError(ErrorCode.UNAVAILABLE, "no server answers"), OSError(ENOSPC, "the disk is full")],
    ids=["server", "disk"],
)
def test_trials_that_could_not_take_place_do_not_count(site, trouble):
    """For example, the current package lacks blocks, and no server answers."""
    attempts = []

    def interrupted(*paths):
        attempts.append(paths)
        if len(attempts) <= 5:
            raise trouble
        return Trial(0.1, 1.0, None)

    site.ask(run_trial=interrupted)
    site.until("probation")
    assert len(attempts) == 6
    assert site.background.replacement.trials == 1


def test_trials_that_cannot_read_or_write_are_not_repeated_forever(site, package):
    attempts = []

    def unreadable(*paths):
        attempts.append(paths)
        raise OSError(EIO, "Input/output error")

    site.ask(run_trial=unreadable)
    assert "3 trials have begun" in site.until("rejected")["reason"]
    assert (len(attempts), current(package)) == (3, package)


def test_a_download_that_can_never_be_written_is_given_up(site, package):
    site.state.candidate.write_text("no directory")
    site.ask()
    assert "File exists" in site.entries.until(event="problem")["reason"]
    assert site.until("rejected")["reason"].endswith(", after 20 attempts")
    assert current(package) == package


def test_a_package_is_rolled_back_however_long_it_takes_to_write(site, monkeypatch):
    attempts = []

    def broken(*arguments):
        attempts.append(arguments)
        if len(attempts) <= MOST_ATTEMPTS:
            raise OSError(EIO, "Input/output error")
        return take_back(*arguments)

    monkeypatch.setattr("mistify_client.monitor.replacement.steps.take_back", broken)
    on_probation(site, before_ms=1.0, fastest_ms=1.5)
    site.until("rolled back")
    assert len(attempts) == MOST_ATTEMPTS + 1


def test_a_goal_refused_by_the_server_is_given_up(site, service):
    service.fake.error = MistifyError(ErrorCode.INVALID_CONFIG, "no such model")
    site.ask()
    assert "no such model" in site.until("rejected")["reason"]


def test_a_permanently_corrupt_download_changes_nothing(site, service, package):
    service.fake.corrupt_downloads = 2
    site.ask()
    assert "did not arrive as the server described it" in site.until("rejected")["reason"]
    assert current(package) == package
    assert not site.state.candidate.exists()


def test_a_download_that_was_corrupt_once_is_repaired(site, service):
    service.fake.corrupt_downloads = 1
    site.ask()
    site.until("probation")


def test_a_download_continues_after_the_disk_was_full(site, service, package):
    with ExitStack() as full_disk:
        with held(service.fake, "WatchJob"):  # the server, in the same process, has written its files by then
            site.ask()
            site.until("adapting")
            size = (site.package / "serve.tflite").stat().st_size
            full_disk.enter_context(files_limited_to(size // 2))
        assert "File too large" in site.entries.until(event="problem")["reason"]
        assert current(package) == package
    site.until("probation")


def test_an_installation_continues_after_the_disk_was_full(site, package):
    """Only the copy of the network exceeds the file size limit; the ledger and log do not."""
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
