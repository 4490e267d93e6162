"""Daemons that end at any time, and successors that continue their work."""

import signal
import subprocess
import sys
import threading

import pytest

from mistify_client.monitor.replacement.candidate import Trial
from mistify_client.monitor.replacement.ledger import Ledger, Phase, Replacement
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import current, install, previous, roll_back, state_directory
from tests.mistify_client.monitor.adapting import held
from tests.mistify_client.monitor.replacement.conftest import WHOLE_WAY, on_probation

#: A daemon that is killed while it tries a package.
DYING = """
import os
import signal
import sys
from pathlib import Path
from mistify_client.monitor.replacement.background import BackgroundReplacement
from mistify_client.monitor.config import ReplacementConfig, goal_template
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState

package, goal = map(Path, sys.argv[1:])
state, config = MonitorState.of(package), ReplacementConfig(server="127.0.0.1:1", goal=goal)
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
journal = Journal(state.log, None)
BackgroundReplacement(package, state, config, goal_template(config), journal, run_trial=die).resume()
signal.pause()
"""


@pytest.mark.parametrize("phase", WHOLE_WAY[:5])
def test_the_next_daemon_continues_in_any_phase(site, service, package, phase):
    """A killed daemon has recorded its phase, and may or may not have completed the step."""
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
        site.daemon(run_trial=lambda *_: Trial(0.1, 1.0, None)).resume()
        site.until("probation")
        assert site.goal == whole.goal
        assert previous(package) == package


@pytest.mark.parametrize(("left", "end"), [("installing", "probation"), ("rolling back", "rolled back")])
def test_running_models_are_notified_even_if_the_daemon_was_killed_before(site, package, left, end):
    site.ask()
    site.until("probation")
    whole = site.background.replacement
    site.stop()
    if left == "rolling back":
        roll_back(package)
    switchboard = Switchboard.open(state_directory(package))
    generation = switchboard.generation
    Ledger(site.state.replacement).save(whole.at(Phase(left), "left"))
    site.daemon(run_trial=lambda *_: Trial(0.1, 1.0, None)).resume()
    site.until(end)
    assert switchboard.generation == generation + 1


def test_a_package_that_crashes_every_daemon_is_rejected(site, package, tmp_path):
    """For example, a package may need more memory than the daemon is allowed to use."""
    left = Replacement(goal="phone-1", config="[]", key="key", job="job-1", phase=Phase.VALIDATING)
    Ledger(site.state.replacement).save(left)
    for _ in range(3):
        died = subprocess.run([sys.executable, "-c", DYING, package, site.config.goal], check=False)
        assert died.returncode == -signal.SIGKILL
    site.daemon(run_trial=lambda *_: Trial(0.1, 1.0, None)).resume()
    entry = site.entries.until(event="replacement")
    assert (entry["phase"], entry["reason"]) == ("rejected", "3 trials have begun, and none has succeeded")


def test_an_interrupted_rollback_is_completed_once(site, package, other):
    install(package, other)
    before = current(package)
    on_probation(site, before_ms=1.0, fastest_ms=1.5)
    site.until("rolled back")
    undone = site.background.replacement
    Ledger(site.state.replacement).save(undone.at(Phase.ROLLING_BACK, "left"))
    site.daemon().resume()
    site.until("rolled back")
    assert current(package) == before


def test_a_damaged_ledger_is_rewritten(site):
    site.state.replacement.write_text('{"asked": 5')
    assert site.daemon().replacement is None
    site.ask()
    site.until("probation")


def test_stopping_cancels_a_waiting_call(site, service):
    with held(service.fake, "WatchJob"):
        background = site.ask()
        site.until("adapting")
        background.stop()
        assert "mistify-background" not in {thread.name for thread in threading.enumerate()}
    assert Ledger(site.state.replacement).replacement.phase is Phase.ADAPTING
