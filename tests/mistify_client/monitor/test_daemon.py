"""The daemon as a process, next to an app that uses the package."""

import fcntl
import json
import signal
import threading
from pathlib import Path

import pytest

from mistify.files.locking import locked
from mistify_client.monitor.state.state import MonitorState
from mistify_client.monitor.state.targets import read_changes, write_changes
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import state_directory
from tests.mistify_client.monitor.conftest import branched_package
from tests.mistify_client.monitor.daemons import CONFIG, mistify, running_app, shown


@pytest.fixture
def package(tmp_path, data):
    return branched_package(tmp_path / "package", data / "tiny_branches.tflite")


def test_the_daemon_switches_branches_to_follow_the_targets(package, start):
    with running_app(package) as model:
        daemon = start()
        assert daemon.until(event="switch", fits=True)["option"] == "branch-2"
        assert model.wanted == "branch-2"
        changed = shown("target", "latency=1ns", "--package", package)
        assert changed.stdout == "latency: 1ns\n"
        refused = shown("target", "latency=fast", "--package", package)
        assert "the targets: 1 problem, nothing was changed" in refused.stderr
        assert daemon.until(event="targets")["latency"] == "1ns"
        entry = daemon.until(event="switch")
        assert (entry["option"], entry["fits"]) == ("branch-0", False)
        assert "no option meets the targets" in entry["reason"]
        assert shown("target", "--reset", "--package", package).stdout == "as in the config\n"
        assert daemon.until(event="targets")["latency"] == "3600s"
        assert daemon.until(event="switch", option="branch-2")["fits"]


def test_an_impossible_accuracy_is_refused_and_changes_nothing(package):
    assert shown("target", "accuracy=90%", "--package", package).exit_code == 0
    refused = shown("target", "accuracy=90", "--package", package)
    assert refused.exit_code == 2
    assert 'accuracy: got 90; expected accuracy, a share above 0 and up to 1; write "90%"' in refused.stderr
    assert shown("target", "--package", package).stdout == "accuracy: 90%\n"


def test_targets_are_shown_with_their_units(package):
    changed = shown("target", "latency=3", "memory=2e6", "energy=0.5", "accuracy=none", "--package", package)
    assert changed.stdout == "latency: 3ms\naccuracy: none\nmemory: 2MB\nenergy: 500uJ\n"


def test_two_commands_that_change_targets_at_once_keep_both_changes(package, monkeypatch):
    state, lock, asked = MonitorState.of(package), fcntl.flock, threading.Event()
    state.directory.mkdir(parents=True)

    def asking(*request):
        asked.set()
        lock(*request)

    other = threading.Thread(target=shown, args=["target", "accuracy=90%", "--package", package])
    with locked(state.directory):
        monkeypatch.setattr(fcntl, "flock", asking)
        other.start()
        asked.wait()
        write_changes(state.targets, {"latency": "5ms"})
    other.join()
    assert read_changes(state.targets) == {"latency": "5ms", "accuracy": "90%"}


def test_the_daemon_ends_cleanly_and_keeps_the_branch(package, start):
    daemon = start()
    daemon.until(event="switch", option="branch-2")
    assert daemon.end(signal.SIGTERM) == 0
    assert Switchboard.open(state_directory(package)).option == 2
    log = MonitorState.of(package).log.read_text().splitlines()
    assert json.loads(log[-1])["event"] == "stopped"
    assert json.loads(log[-1])["reason"] == "by SIGTERM"
    again = start()
    assert again.until(event="stay")["option"] == "branch-2"


def test_the_daemon_reloads_its_config(package, config, start):
    daemon = start()
    daemon.until(event="switch", option="branch-2")
    config.write_text("interval = 5")
    daemon.process.send_signal(signal.SIGHUP)
    reason = daemon.until(event="problem", about="config")["reason"]
    assert "write its unit" in reason
    assert "1 problem, the earlier settings apply" in reason
    config.write_text(CONFIG.replace("60min", "1ns"))
    daemon.process.send_signal(signal.SIGHUP)
    daemon.until(event="config")
    assert daemon.until(event="switch")["option"] == "branch-0"


def test_a_second_daemon_for_a_package_is_refused(package, config, start):
    first = start()
    first.until(event="started")
    second = mistify("monitor", "--package", package, "--config", config)
    assert second.returncode == 4
    assert f"(process {first.process.pid}" in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize(
    ("text", "code"), [("interval = 5", 2), ('[replacement]\nserver = "h:1"\ngoal = "none.json"', 2)]
)
def test_the_daemon_does_not_start_with_a_wrong_config(package, config, text, code):
    config.write_text(text)
    refused = mistify("monitor", "--package", package, "--config", config)
    assert refused.returncode == code
    assert "Traceback" not in refused.stderr
    assert not MonitorState.of(package).directory.exists()


def test_a_directory_without_a_package_is_refused(tmp_path, config):
    refused = mistify("monitor", "--package", tmp_path, "--config", config)
    assert refused.returncode == 3
    assert "is not a package" in refused.stderr


def test_the_daemon_can_decide_once_and_end(package, config):
    once = mistify("monitor", "--package", package, "--config", config, "--once")
    assert once.returncode == 0
    assert json.loads(once.stdout.splitlines()[-1])["event"] == "stay"
    text = shown("status", "--package", package).stdout
    assert "monitor: not running" in text
    assert "* branch-1: 10ms now, 10ms expected, accuracy 0.8" in text


def test_status_shows_the_state_of_the_daemon(package, start):
    assert shown("status", "--package", package).exit_code == 3
    daemon = start()
    daemon.until(event="switch", option="branch-2")
    shown("target", "latency=1ns", "accuracy=95%", "--package", package)
    daemon.until(event="switch", option="branch-0")
    daemon.process.send_signal(signal.SIGHUP)  # the status is written after the log entry
    daemon.until(event="config")
    text = shown("status", "--package", package).stdout
    assert f"monitor: running, process {daemon.process.pid}" in text
    assert "targets: latency 1ns, accuracy 95%, not met" in text
    assert "* branch-0" in text
    status = json.loads(shown("status", "--json", "--package", package).stdout)
    assert (status["running"], status["option"], status["fits"]) == (True, "branch-0", False)
    assert "switch" in {entry["event"] for entry in status["last"]}
    assert status["reading"]["memory_available"] > 0


@pytest.mark.parametrize("content", ["", '{"pid": 5, "time"', "{}", "[5]"])
def test_a_status_damaged_by_a_power_cut_is_refused(package, content):
    state = MonitorState.of(package)
    state.directory.mkdir(parents=True)
    state.status.write_text(content)
    refused = shown("status", "--package", package)
    assert refused.exit_code == 3
    assert refused.exception.__class__ is SystemExit
    assert f"{state.status} is not the status of a monitor" in refused.stderr
    assert f"mistify monitor --package {package}" in refused.stderr


def test_the_daemon_survives_any_problem_with_its_files(package, start):
    state = MonitorState.of(package)
    state.directory.mkdir(parents=True)
    Path(f"{state.status}.part").mkdir()
    state.targets.write_text("[]")
    daemon = start()
    reason = daemon.until(event="problem", about="targets")["reason"]
    assert "mistify target --reset" in reason
    assert "the earlier settings apply" in reason
    assert "Is a directory" in daemon.until(event="problem", about="status file")["reason"]
    daemon.until(event="switch", option="branch-2")
    kept = (package / "manifest.json").read_bytes()
    (package / "manifest.json").write_text("{")
    Switchboard.open(state_directory(package)).bump()
    assert "is damaged" in daemon.until(event="problem", about="package")["reason"]
    (package / "manifest.json").write_bytes(kept)
    assert "package: no problem any more" in daemon.until(event="recovered")["reason"]
    daemon.until(event="switch", option="branch-2")
