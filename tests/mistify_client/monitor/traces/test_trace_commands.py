"""`mistify monitor --record` next to an app, and `--replay` without the device."""

import shutil
import signal

import pytest

from mistify_client.monitor.state.state import MonitorState
from tests.mistify_client.monitor.conftest import branched_package
from tests.mistify_client.monitor.daemons import CONFIG, running_app, shown
from tests.support.paths import REPOSITORY


@pytest.fixture
def package(tmp_path, data):
    return branched_package(tmp_path / "package", data / "tiny_branches.tflite")


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "day.jsonl"


def test_a_recorded_day_is_replayed_without_the_package(package, config, start, trace, tmp_path):
    with running_app(package):
        daemon = start("--record", str(trace))
        assert daemon.until(event="switch", fits=True)["option"] == "branch-2"
        config.write_text(CONFIG.replace("60min", "1ns"))
        daemon.process.send_signal(signal.SIGHUP)
        assert daemon.until(event="switch")["option"] == "branch-0"
        daemon.end(signal.SIGTERM)
    shutil.rmtree(package)
    config.write_text(CONFIG)
    replayed = shown("monitor", "--config", config, "--replay", trace)
    assert (replayed.exit_code, replayed.stderr) == (0, "")
    lines = replayed.stdout.splitlines()
    assert sum(line.startswith("recorded from 20") for line in lines) == 2  # a reload begins a run
    assert any("branch-2: branch-2 takes" in line for line in lines)
    assert not any("branch-0: branch-0 takes" in line for line in lines)
    (within,) = (line.split() for line in lines if line.startswith("time within the targets"))
    assert within[-1] == "100.0%"
    config.write_text(CONFIG.replace("60min", "1ns"))
    assert "no option meets the targets" in shown("monitor", "--config", config, "--replay", trace).stdout


def test_the_example_is_replayed_as_documented():
    trace, config = (REPOSITORY / "configs" / name for name in ("day.jsonl", "contextual.toml"))
    replayed = shown("monitor", "--replay", trace, "--config", config)
    assert replayed.exit_code == 0
    page = (REPOSITORY / "docs" / "monitor.md").read_text()
    _, _, block = page.partition("$ mistify monitor --replay configs/day.jsonl")
    documented = [line for line in block.partition("```")[0].splitlines()[1:] if line != "..."]
    assert len(documented) > 8
    assert documented == [line for line in replayed.stdout.splitlines() if line in documented]


def test_a_replay_does_not_need_the_files_of_other_settings(package, config, trace, tmp_path):
    once = shown("monitor", "--package", package, "--config", config, "--once", "--record", trace)
    assert once.exit_code == 0
    config.write_text('[replacement]\nserver = "h:1"\ngoal = "none.json"\ntoken_file = "none"\n')
    assert shown("monitor", "--config", config, "--replay", trace).exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--package names the package; only --replay does without"),
        (("--replay", "t", "--package", "p"), "--replay needs only --config: leave out the other options"),
        (("--replay", "t", "--once"), "--replay needs only --config"),
        (("--replay", "none.jsonl"), "none.jsonl: got No such file or directory; expected a trace to read"),
    ],
)
def test_options_that_do_not_go_together_are_refused(config, options, message):
    refused = shown("monitor", "--config", config, *options)
    assert refused.exit_code == 2
    assert message in refused.stderr


def test_another_file_stops_the_monitor_before_it_starts(package, config, trace):
    trace.write_text("my notes\n")
    refused = shown("monitor", "--package", package, "--config", config, "--once", "--record", trace)
    assert refused.exit_code == 2
    assert "a new file, or a trace to continue" in refused.stderr
    assert trace.read_text() == "my notes\n"
    assert not MonitorState.of(package).log.exists()


def test_an_impossible_accuracy_is_refused_in_a_replay(package, config, trace):
    shown("monitor", "--package", package, "--config", config, "--once", "--record", trace)
    config.write_text("[targets]\naccuracy = 90\n")
    refused = shown("monitor", "--config", config, "--replay", trace)
    assert refused.exit_code == 2
    assert 'write "90%"' in refused.stderr
