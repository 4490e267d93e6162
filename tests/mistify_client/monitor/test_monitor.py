"""When the daemon asks for a new package, on a simulated clock."""

import json

import pytest

from mistify_client.monitor.config import MonitorConfig
from mistify_client.monitor.daemon import Monitor
from mistify_client.monitor.journal import Journal
from mistify_client.monitor.replacement import Ledger
from mistify_client.monitor.sensors import Reading
from mistify_client.monitor.state import MonitorState
from mistify_client.statistics import Recorder
from mistify_client.switchboard import Switchboard
from mistify_client.versions import state_directory

from .conftest import EXPECTED_MS
from .test_config import GOAL


class Watched:
    """A package under a monitor; `step` lets a second pass."""

    def __init__(self, package, tmp_path):
        (tmp_path / "goal.json").write_text(json.dumps(GOAL))
        config = MonitorConfig.model_validate(
            {
                "targets": {"latency": "20ms"},
                "replacement": {"server": "127.0.0.1:1", "goal": tmp_path / "goal.json", "after": "10s"},
            }
        )
        self.state = MonitorState.of(package)
        self.state.directory.mkdir(parents=True)
        self.journal = Journal(self.state.log, None)
        self.now = 1000.0
        self.switchboard = Switchboard.open(state_directory(package))
        self.recorder = Recorder.open(state_directory(package), 3, self.switchboard.generation)
        self.monitor = Monitor(package, lambda: config, self.journal, sensor=Reading, clock=lambda: self.now)

    def step(self, load, seconds):
        """So many seconds in which inferences take `load` times what is expected; None for no inferences."""
        for _ in range(seconds):
            branch = max(self.switchboard.branch, 0)
            for part in range(1, 9 if load else 0):
                self.recorder.record(self.now + part / 10, EXPECTED_MS[branch] * load, branch, 1)
            self.now += 1
            self.monitor.step()

    @property
    def asked(self):
        return len(Ledger(self.state.replacement).asked)


@pytest.fixture
def watched(package, tmp_path):
    watched = Watched(package, tmp_path)
    yield watched
    watched.monitor.close()


def test_asks_when_no_branch_has_fitted_for_a_while(watched):
    watched.step(2.0, 20)
    assert watched.asked == 0
    watched.step(8.0, 9)
    assert watched.asked == 0
    watched.step(8.0, 3)
    assert watched.asked == 1
    watched.step(8.0, 60)
    assert watched.asked == 1


def test_a_moment_that_fits_begins_the_wait_anew(watched):
    for _ in range(5):
        watched.step(8.0, 8)
        watched.step(1.0, 2)
    assert watched.asked == 0


def test_does_not_ask_by_what_was_measured_long_ago(watched):
    watched.step(8.0, 5)
    watched.step(None, 60)
    assert watched.asked == 0


def test_tells_decisions_that_change_and_writes_the_status_seldom(watched):
    watched.step(1.0, 3)
    noted, written = watched.journal.noted, watched.state.status.stat().st_mtime_ns
    watched.step(1.0, 2)
    assert watched.journal.noted == noted
    assert watched.state.status.stat().st_mtime_ns == written
    watched.step(1.0, 2)
    assert watched.state.status.stat().st_mtime_ns > written
    watched.step(3.0, 2)
    assert [entry["event"] for entry in watched.journal.last][-1] == "switch"
    assert json.loads(watched.state.status.read_text())["branch"] == 0


def test_goes_on_switching_while_the_server_is_away(watched):
    """Nobody listens at the port."""
    watched.step(8.0, 15)
    assert watched.asked == 1
    watched.step(1.0, 5)
    assert watched.switchboard.branch == 1
    watched.step(0.5, 5)
    assert watched.switchboard.branch == 2
