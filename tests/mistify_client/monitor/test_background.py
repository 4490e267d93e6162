"""The background path against a porting service, through real gRPC, with real packages."""

import json
import socket
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.manifest import Manifest, verify
from mistify.v1 import porting_pb2 as pb
from mistify_client.monitor.background import Background
from mistify_client.monitor.candidate import Trial, try_candidate
from mistify_client.monitor.config import ReplacementConfig, goal_template
from mistify_client.monitor.goals import Shortfall
from mistify_client.monitor.journal import Journal
from mistify_client.monitor.replacement import Ledger, Phase
from mistify_client.monitor.state import MonitorState
from mistify_client.monitor.targets import Targets
from mistify_client.retry import Backoff
from mistify_client.versions import current, install, previous

from ..conftest import IMAGE, SCORES, Service, make_package, serve
from ..test_versions import largest_file
from .adapting import Entries, adapting_fake, held
from .test_config import GOAL

SHORT = Shortfall(Targets(latency="1us"), ratio=2.0, fastest_ms=0.2)
WHOLE_WAY = ["submitting", "adapting", "downloading", "validating", "installing", "probation"]


@pytest.fixture
def service(data):
    fake = adapting_fake(data / "tiny.tflite")
    service = Service(fake, *serve(fake, "127.0.0.1:0"))
    yield service
    service.stop()


@pytest.fixture
def package(tmp_path, data):
    return make_package(tmp_path / "package", data / "tiny.tflite", (IMAGE,), (SCORES,))


@pytest.fixture
def other(tmp_path, data):
    """A version that somebody else has installed."""
    return make_package(tmp_path / "other", data / "tiny.tflite", (IMAGE,), (SCORES,))


class Site:
    """A package, and the background paths of daemons that look after it one after the other."""

    def __init__(self, package, tmp_path, service, trying):
        self.package = package
        self.trying = trying
        self.state = MonitorState.of(package)
        self.state.directory.mkdir(parents=True)
        (tmp_path / "goal.json").write_text(json.dumps(GOAL))
        self.config = ReplacementConfig(
            server=service.address, goal=tmp_path / "goal.json", after="1s", probation="60s"
        )
        self.entries = Entries()
        self.background = None

    def daemon(self, trying=None, **changes):
        self.stop()
        self.background = Background(
            self.package,
            self.state,
            self.config.model_copy(update=changes),
            goal_template(self.config.goal),
            Journal(self.state.log, self.entries),
            retry=Backoff(first=0.01, longest=0.05),
            trying=trying or self.trying,
        )
        return self.background

    def ask(self, shortfall=SHORT, **settings):
        background = self.daemon(**settings)
        background.ask(shortfall, Manifest.load(current(self.package)))
        background.resume()
        return background

    def until(self, phase):
        return self.entries.until(phase=phase)

    def stop(self):
        if self.background is not None:
            self.background.stop()

    @property
    def goal(self):
        return verify(current(self.package)).goal


@pytest.fixture
def site(package, tmp_path, service, turns):
    site = Site(package, tmp_path, service, partial(try_candidate, clock=turns))
    yield site
    site.stop()


def on_probation(site, *, fastest_ms, before_ms, fits=False):
    """A package that was installed, and then measured for as long as probation lasts."""
    background = site.daemon()
    background.fastest_ms = before_ms
    background.ask(SHORT, Manifest.load(site.package))
    background.resume()
    site.until("probation")
    for second in range(70):
        background.fastest_ms = fastest_ms
        background.measured(1000.0 + second, fits)
    background.resume()
    return background


def test_a_new_package_becomes_the_current_one_and_the_old_one_is_kept(site, package):
    site.ask()
    site.until("probation")
    assert site.entries.phases == WHOLE_WAY
    replacement = site.background.replacement
    assert site.goal == replacement.goal
    assert previous(package) == package
    assert not site.state.candidate.exists()


def test_a_goal_without_a_job_begins_one_and_later_goals_join_it(site, service):
    site.ask()
    site.until("probation")
    assert len(service.fake.requests_of(pb.SubmitBatchRequest)) == 1
    site.background.measured(0.0, True)
    on_probation_ends(site)
    site.ask(replace(SHORT, ratio=4.0), trying=lambda *_: Trial(0.1, 1.0, None))
    site.until("probation")
    (added,) = service.fake.requests_of(pb.AddGoalsRequest)
    assert added.job_id == "job-1"


def on_probation_ends(site):
    site.background.fastest_ms = 0.001
    site.background.measured(1000.0, True)
    site.background.measured(1061.0, True)
    assert site.background.replacement.phase is Phase.KEPT


def test_a_goal_joins_the_job_of_the_config(site, service):
    site.ask(job="job-1")
    site.until("probation")
    assert [request.job_id for request in service.fake.requests_of(pb.AddGoalsRequest)] == ["job-1"]
    assert service.fake.requests_of(pb.SubmitBatchRequest) == []


def test_a_job_that_is_gone_is_begun_anew_unless_the_config_names_it(site, service):
    site.ask()
    site.until("probation")
    on_probation_ends(site)
    service.fake.forgotten = True
    site.ask(replace(SHORT, ratio=4.0), trying=lambda *_: Trial(0.1, 1.0, None))
    site.until("probation")
    assert len(service.fake.requests_of(pb.SubmitBatchRequest)) == 2
    on_probation_ends(site)
    site.ask(replace(SHORT, ratio=8.0), job="job-9")
    assert "there is no job" in site.until("rejected")["reason"]


def test_the_same_goal_is_asked_for_once(site, service):
    service.fake.fails = True
    site.ask()
    assert "no room" in site.until("rejected")["reason"]
    asked = len(service.fake.requests)
    site.ask()
    assert site.background.replacement.phase is Phase.REJECTED
    assert len(service.fake.requests) == asked
    service.fake.fails = False
    site.ask(replace(SHORT, ratio=4.0))
    site.until("probation")


def test_one_replacement_at_a_time(site, service):
    with held(service.fake, "WatchJob"):
        first = site.ask()
        site.until("adapting")
        first.ask(replace(SHORT, ratio=4.0), Manifest.load(site.package))
        first.resume()
    site.until("probation")
    assert len(service.fake.requests_of(pb.SubmitBatchRequest)) == 1
    assert len(Ledger(site.state.replacement).asked) == 1


def test_the_server_is_away_at_first(site, service):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        site.ask(server=address)
        assert "no server answers" in site.entries.until(event="problem")["reason"]
    late, _ = serve(service.fake, address)
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


def test_a_token_that_is_refused_may_be_mended(site, service, tmp_path):
    (tmp_path / "token").write_text("wrong")
    service.fake.error = MistifyError(ErrorCode.UNAUTHENTICATED, "the token is wrong")
    site.ask(token_file=tmp_path / "token")
    assert "the token is wrong" in site.entries.until(event="problem")["reason"]
    (tmp_path / "token").write_text("right")
    service.fake.error = None
    site.until("probation")
    sent = [dict(metadata)["authorization"] for metadata in service.fake.metadata]
    assert (sent[0], sent[-1]) == ("Bearer wrong", "Bearer right")


def test_a_goal_that_the_server_refuses_is_given_up(site, service):
    service.fake.error = MistifyError(ErrorCode.INVALID_CONFIG, "no such model")
    site.ask()
    assert "no such model" in site.until("rejected")["reason"]


def test_a_download_that_stays_corrupt_changes_nothing(site, service, package):
    service.fake.corrupt_downloads = 2
    site.ask()
    assert "did not arrive as the server described it" in site.until("rejected")["reason"]
    assert current(package) == package


def test_a_download_that_is_corrupt_once_is_repaired(site, service):
    service.fake.corrupt_downloads = 1
    site.ask()
    site.until("probation")


def test_a_package_that_is_no_network_changes_nothing(site, service, package, tmp_path):
    (tmp_path / "text").write_bytes(b"no network" * 100)
    service.fake.network = tmp_path / "text"
    site.ask()
    assert "cannot be used" in site.until("rejected")["reason"]
    assert current(package) == package


def test_a_package_that_is_no_faster_changes_nothing(site, package):
    site.ask(trying=lambda *_: Trial(1.0, 1.0, None))
    assert "not faster" in site.until("rejected")["reason"]
    assert current(package) == package


def test_a_package_that_says_something_else_changes_nothing(site, package, tmp_path):
    site.ask(trying=lambda *_: Trial(0.1, 1.0, agreement=0.5))
    assert "agree on 50% of the examples, which is below 70%" in site.until("rejected")["reason"]
    assert current(package) == package


def test_examples_are_compared(site, package, tmp_path, expected):
    np.savez(tmp_path / "examples.npz", image=expected["image"])
    site.ask(examples=tmp_path / "examples.npz")
    assert "agree on 100%" in site.until("installing")["reason"]


def test_where_accuracy_was_short_a_package_may_be_slower(site):
    accurate = Shortfall(Targets(latency="1s", accuracy="99%"), ratio=1.0, fastest_ms=0.2)
    site.ask(accurate, trying=lambda *_: Trial(2.0, 1.0, None))
    site.until("probation")


def test_a_trial_that_breaks_down_is_no_end_of_the_daemon(site):
    def broken(*_):
        raise RuntimeError("tensor arena exhausted")

    site.ask(trying=broken)
    assert site.until("rejected")["reason"] == "RuntimeError: tensor arena exhausted"


def test_a_full_disk_during_the_download(site, package):
    site.state.candidate.mkdir()
    (site.state.candidate / "serve.tflite.part").symlink_to("/dev/full")
    site.ask()
    assert "No space left" in site.entries.until(event="problem")["reason"]
    assert current(package) == package
    (site.state.candidate / "serve.tflite.part").unlink()
    site.until("probation")


def test_a_full_disk_during_the_swap(site, package):
    """Files larger than a limit cannot be written: the network's copy is, the ledger and log are not."""
    network = (site.package / "serve.tflite").stat().st_size
    assert network > 2000

    def tried(*paths):
        limit.__enter__()
        return Trial(0.1, 1.0, None)

    limit = largest_file(2000)
    site.ask(trying=tried)
    try:
        assert "too large" in site.entries.until(event="problem")["reason"]
        assert site.background.replacement.phase is Phase.INSTALLING
        assert current(package) == package
    finally:
        limit.__exit__(None, None, None)
    site.until("probation")
    assert site.goal == site.background.replacement.goal


def test_a_package_that_takes_longer_in_use_is_rolled_back(site, package):
    on_probation(site, before_ms=1.0, fastest_ms=1.5)
    assert "takes 1.5ms, that of the package before took 1ms" in site.until("rolled back")["reason"]
    assert current(package) == package


@pytest.mark.parametrize(
    "measured",
    [
        {"before_ms": 1.0, "fastest_ms": 0.5},
        {"before_ms": 1.0, "fastest_ms": 1.5, "fits": True},
        {"before_ms": None, "fastest_ms": 1.5},
    ],
)
def test_a_package_that_proves_itself_is_kept(site, measured):
    background = on_probation(site, **measured)
    assert background.replacement.phase is Phase.KEPT
    assert site.goal == background.replacement.goal


def test_probation_lasts(site):
    background = site.ask()
    site.until("probation")
    background.fastest_ms = 9.0
    background.measured(1000.0, False)
    background.measured(1059.0, False)
    assert background.replacement.phase is Phase.PROBATION


@pytest.mark.parametrize("phase", WHOLE_WAY[:5])
def test_the_next_daemon_goes_on_in_any_phase(site, service, package, phase):
    """As the disk is when a daemon was killed: the phase is written down, its step may be done or not."""
    site.ask()
    site.until("probation")
    whole = site.background.replacement
    site.stop()
    for done in (False, True):
        left = whole.at(Phase(phase), "left", job="job-1" if phase != "submitting" else None)
        Ledger(site.state.replacement).save(left)
        if not done:
            (site.state.directory.parent / "current").unlink(missing_ok=True)
        if phase in ("validating", "installing"):
            site.state.candidate.mkdir(exist_ok=True)
            for name, content in service.fake.files.items():
                (site.state.candidate / name).write_bytes(content)
        site.daemon(trying=lambda *_: Trial(0.1, 1.0, None)).resume()
        site.until("probation")
        assert site.goal == whole.goal
        assert previous(package) == package


def test_a_roll_back_that_was_interrupted_is_finished_once(site, package, other):
    install(package, other)
    before = current(package)
    on_probation(site, before_ms=1.0, fastest_ms=1.5)
    site.until("rolled back")
    undone = site.background.replacement
    Ledger(site.state.replacement).save(undone.at(Phase.ROLLING_BACK, "left"))
    site.daemon().resume()
    site.until("rolled back")
    assert current(package) == before


def test_a_damaged_ledger_is_written_anew(site):
    site.state.replacement.write_text('{"asked": 5')
    assert site.daemon().replacement is None
    site.ask()
    site.until("probation")


def test_stopping_ends_a_call_that_waits(site, service):
    with held(service.fake, "WatchJob"):
        background = site.ask()
        site.until("adapting")
        background.stop()
        assert "mistify-background" not in {thread.name for thread in threading.enumerate()}
    assert Ledger(site.state.replacement).replacement.phase is Phase.ADAPTING


def test_a_new_package_comes_after_the_one_that_is_current(site, package, other):
    install(package, other)
    between = current(package)
    site.ask()
    site.until("probation")
    assert previous(package) == between
