"""The monitor on a simulated clock: requests for new packages, probation, problems."""

import json
import shutil

import pytest

from mistify.errors import MistifyError
from mistify_client.monitor.config import MonitorConfig
from mistify_client.monitor.daemon import Monitor
from mistify_client.monitor.policies.base import ENTRY_POINTS
from mistify_client.monitor.replacement.ledger import Ledger, Phase, Replacement
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.monitor.state.targets import write_changes
from mistify_client.runtime.samples import samples_directory
from mistify_client.runtime.statistics import Recorder
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import current, install, state_directory
from tests.mistify_client.monitor.adapting import Entries
from tests.mistify_client.monitor.conftest import EXPECTED_MS, three_branches
from tests.mistify_client.monitor.test_config import GOAL
from tests.support.plug_ins import installed


class Watched:
    """A package with a monitor; `step` lets seconds pass."""

    def __init__(self, package, tmp_path):
        (tmp_path / "goal.json").write_text(json.dumps(GOAL))
        self.config = MonitorConfig.model_validate(
            {
                "targets": {"latency": "20ms"},
                "replacement": {"server": "127.0.0.1:1", "goal": tmp_path / "goal.json", "after": "10s"},
            }
        )
        self.state = MonitorState.of(package)
        self.state.directory.mkdir(parents=True)
        self.entries = Entries()
        self.journal = Journal(self.state.log, self.entries)
        self.now = 1000.0
        self.switchboard = Switchboard.open(state_directory(package))
        self.package = package
        self.expected_ms = EXPECTED_MS
        self.load()
        self.monitor = Monitor(
            package, lambda: self.config, self.journal, sensor=SensorReading, clock=lambda: self.now
        )

    def load(self):
        """Let the app load and run the current version."""
        self.recorder = Recorder.open(state_directory(self.package), 3, self.switchboard.generation, 1)

    def step(self, load, seconds, lost_ms=0.0, waiting_ms=0.0):
        """Let seconds pass.

        Inferences take `load` times the expected latency, or none run if it is None. Each takes `lost_ms`
        more
        whatever the branch, and waits `waiting_ms` for the processor.
        """
        for _ in range(seconds):
            branch = max(self.switchboard.option, 0)
            for part in range(1, 9 if load else 0):
                computing = self.expected_ms[branch] * load + lost_ms
                takes = computing + waiting_ms
                self.recorder.record(self.now + part / 10, takes, computing, 0.0, option=branch, batch=1)
            self.now += 1
            self.monitor.step()

    @property
    def asked(self):
        return len(Ledger(self.state.replacement).requested)

    @property
    def phase(self):
        return Ledger(self.state.replacement).replacement.phase


@pytest.fixture
def watched(package, tmp_path):
    watched = Watched(package, tmp_path)
    yield watched
    watched.monitor.close()


def test_a_goal_is_submitted_when_no_branch_has_fitted_for_a_while(watched):
    watched.step(2.0, 20)
    assert watched.asked == 0
    watched.step(8.0, 9)
    assert watched.asked == 0
    watched.step(8.0, 3)
    assert watched.asked == 1
    watched.step(8.0, 60)
    assert watched.asked == 1


def test_a_moment_in_which_a_branch_fits_restarts_the_wait(watched):
    for _ in range(5):
        watched.step(8.0, 8)
        watched.step(1.0, 2)
    assert watched.asked == 0


def test_old_measurements_do_not_cause_a_request(watched):
    watched.step(8.0, 5)
    watched.step(None, 60)
    assert watched.asked == 0


def test_a_target_for_an_unknown_energy_is_a_problem_while_it_lasts(watched):
    watched.monitor.step()
    write_changes(watched.state.targets, {"energy": "2mJ"})
    watched.step(1.0, 1)
    reason = "the energy target does not apply to branch-0, branch-1 and branch-2: the energy is unknown"
    assert watched.journal.problems == {"energy": reason}
    write_changes(watched.state.targets, {})
    watched.step(1.0, 1)
    assert watched.journal.problems == {}


def test_only_changed_decisions_are_logged_and_the_status_is_written_rarely(watched):
    watched.step(1.0, 3)
    noted = watched.journal.noted
    watched.state.status.unlink()
    watched.step(1.0, 2)
    assert watched.journal.noted == noted
    assert not watched.state.status.exists()
    watched.step(1.0, 2)
    assert watched.state.status.exists()
    watched.step(3.0, 2)
    assert [entry["event"] for entry in watched.journal.last][-1] == "switch"
    assert json.loads(watched.state.status.read_text())["option"] == "branch-0"


def test_no_smaller_network_is_requested_if_time_is_lost_elsewhere(watched, tmp_path):
    """A version with networks half as large takes as long, so the time is lost outside the network."""
    watched.step(1.0, 8, lost_ms=30.0)
    watched.expected_ms = tuple(ms / 2 for ms in EXPECTED_MS)
    install(watched.package, halved(tmp_path / "half"))
    watched.load()
    watched.step(1.0, 100, lost_ms=30.0)
    assert watched.asked == 0
    cause = watched.entries.until(event="cause")
    assert (cause["cause"], cause["smaller_helps"]) == ("fixed time", False)
    assert "30ms of the 32ms" in cause["reason"]
    assert json.loads(watched.state.status.read_text())["cause"]["cause"] == "fixed time"
    watched.step(20.0, 20)
    assert watched.asked == 0, "slower, presumably for the same reason"
    watched.step(1.0, 2)
    watched.step(20.0, 20)
    assert watched.asked == 1, "faster, so the fixed time is unknown again"


def halved(directory):
    """Return a package with the same branches at half the expected latency."""
    directory.mkdir()
    package = three_branches()
    branches = tuple(
        each.model_copy(
            update={
                "latency": each.latency.model_copy(update={"median_ms": each.latency.median_ms / 2}),
                "achieved": {**each.achieved, "latency_ms@board": each.achieved["latency_ms@board"] / 2},
            }
        )
        for each in package.branches
    )
    package.model_copy(update={"branches": branches, "goal": "first"}).save(directory)
    return directory


def test_no_smaller_network_is_requested_while_inferences_wait_for_the_processor(watched):
    watched.step(1.0, 100, waiting_ms=30.0)
    assert watched.asked == 0
    cause = watched.entries.until(event="cause")
    assert (cause["cause"], cause["smaller_helps"]) == ("waiting", False)
    watched.step(8.0, 20)
    assert watched.asked == 1, "now the network itself computes for that long"


def test_inferences_with_other_threads_are_reported_and_do_not_count(watched):
    watched.recorder = Recorder.open(state_directory(watched.package), 3, watched.switchboard.generation, 4)
    watched.step(8.0, 20)
    assert watched.asked == 0
    assert "an app runs with 4 threads" in watched.journal.problems["threads"]
    watched.load()
    watched.step(8.0, 20)
    assert watched.asked == 1
    assert "threads" not in watched.journal.problems


def test_switching_continues_while_the_server_is_unreachable(watched):
    """No server listens on the port."""
    watched.step(8.0, 15)
    assert watched.asked == 1
    watched.step(1.0, 5)
    assert watched.switchboard.option == 1
    watched.step(0.5, 5)
    assert watched.switchboard.option == 2


@pytest.fixture
def newer(tmp_path):
    """Return a new package from the server."""
    directory = tmp_path / "newer"
    directory.mkdir()
    three_branches().model_copy(update={"goal": "phone-1", "job": "job-1"}).save(directory)
    return directory


@pytest.fixture
def on_probation(watched, newer):
    """Install a package while an app runs inferences, and return the monitored site."""
    watched.step(1.0, 5)
    install(watched.package, newer)
    installed = Replacement(goal="phone-1", job="job-1", config="[]", key="key", phase=Phase.PROBATION)
    Ledger(watched.state.replacement).save(installed)
    watched.monitor.reload()
    return watched


def test_a_package_that_apps_cannot_load_is_rolled_back(on_probation):
    """The app retries after a minute, and runs the previous version until then."""
    on_probation.step(1.0, 115)
    assert on_probation.phase is Phase.PROBATION
    on_probation.step(1.0, 10)
    assert "no app has loaded it" in on_probation.entries.until(phase="rolled back")["reason"]
    assert current(on_probation.package) == on_probation.package
    on_probation.load()
    on_probation.step(8.0, 12)
    assert on_probation.asked == 2


def test_a_package_is_judged_by_the_app_that_has_loaded_it(on_probation):
    behind = on_probation.recorder
    on_probation.load()
    for _ in range(130):
        behind.record(on_probation.now + 0.5, EXPECTED_MS[1], EXPECTED_MS[1], 0.0, option=1, batch=1)
        on_probation.step(1.0, 1)
    assert on_probation.phase is Phase.KEPT


def test_probation_waits_until_an_app_runs_an_inference(on_probation):
    """The first inference loads the package, but still runs the previous version."""
    on_probation.step(None, 600)
    on_probation.step(1.0, 1)
    on_probation.step(None, 600)
    assert on_probation.phase is Phase.PROBATION
    on_probation.load()
    on_probation.step(1.0, 65)
    assert on_probation.phase is Phase.KEPT


def test_a_temporarily_unreadable_package_is_reported(watched, newer):
    install(watched.package, newer)
    watched.step(1.0, 1)
    manifest = watched.package / "manifest.json"
    kept = manifest.read_bytes()
    manifest.unlink()
    manifest.mkdir()
    watched.step(1.0, 1)
    assert set(watched.journal.problems) == {"package", "status file"}
    manifest.rmdir()
    manifest.write_bytes(kept)
    watched.step(1.0, 1)
    assert watched.journal.problems == {}


POLICY = """
from mistify.parsing.validation import Settings
from mistify_client.monitor.policies.base import Decision, Policy

class Fragile(Policy):
    params_class = Settings
    def __init__(self, params):
        self._params = params
    def decide(self, situation):
        if 2 < situation.ratio < 4:
            return 1 / 0
        if situation.ratio < 2:
            return Decision(situation.option, False, "as before")
        other = next(option.id for option in situation.options if option.id != situation.option)
        return Decision(other, False, None)
"""


@pytest.mark.parametrize(("load", "about"), [(3.0, "package"), (5.0, "decision")])
def test_a_policy_of_a_plug_in_that_fails_does_not_end_the_daemon(
    watched, tmp_path, monkeypatch, load, about
):
    name, reasons = f"fragile_{about}", {"package": "ZeroDivisionError: division", "decision": "TypeError: "}
    site = installed(tmp_path / "site", name, POLICY, {"fragile": f"{name}:Fragile"}, ENTRY_POINTS)
    monkeypatch.syspath_prepend(site)
    watched.config = watched.config.model_copy(update={"policy": {"name": "fragile"}})
    watched.monitor.reload()
    watched.step(1.0, 2)
    watched.step(load, 3)
    assert reasons[about] in watched.journal.problems[about]
    assert watched.entries.until(event="problem", about=about)["reason"] == watched.journal.problems[about]
    watched.step(1.0, 3)
    assert about not in watched.journal.problems


def test_an_unusable_state_keeps_the_previous_config(watched):
    watched.step(1.0, 1)
    switchboard = state_directory(watched.package) / "switchboard"
    kept = switchboard.rename(switchboard.with_name("kept"))
    switchboard.mkdir()
    watched.monitor.reload()
    assert "Is a directory" in watched.journal.problems["config"]
    watched.step(3.0, 2)
    assert watched.switchboard.option == 0
    switchboard.rmdir()
    kept.rename(switchboard)
    watched.monitor.reload()
    watched.step(3.0, 1)
    assert watched.journal.problems == {}


def test_examples_are_read_before_a_package_is_requested(watched, tmp_path):
    asks = watched.config.replacement.model_copy(update={"examples": tmp_path / "none.npz"})
    watched.config = watched.config.model_copy(update={"replacement": asks})
    watched.monitor.reload()
    assert f"{tmp_path / 'none.npz'}: got" in watched.journal.problems["config"]
    with pytest.raises(MistifyError, match="no such file"):
        Monitor(watched.package, lambda: watched.config, watched.journal)


def test_the_removal_of_the_state_is_reported(watched):
    watched.step(1.0, 1)
    assert watched.journal.problems == {}
    shutil.rmtree(state_directory(watched.package))
    watched.step(1.0, 1)
    assert "restart the monitor, and the apps" in watched.journal.problems["state"]


def test_inputs_that_a_killed_monitor_has_left_are_removed(package, tmp_path):
    left = samples_directory(state_directory(package))
    left.mkdir(parents=True)
    (left / "1-0").write_bytes(b"an input of an app")
    Watched(package, tmp_path)
    assert not left.exists()
