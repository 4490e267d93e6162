"""The daemon as a process, next to an app that uses the package."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from mistify.files.locking import locked
from mistify.package.manifest import Manifest
from mistify.package.verification import verify
from mistify.v1 import porting_pb2 as pb
from mistify_client import load
from mistify_client.cli.main import app
from mistify_client.monitor.state.state import MonitorState
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import current, previous, state_directory
from tests.mistify_client.monitor.adapting import PATIENCE, held
from tests.mistify_client.monitor.conftest import branch
from tests.mistify_client.monitor.test_config import GOAL
from tests.support.tiny_packages import IMAGE, SCORES, make_package

MISTIFY = Path(sys.executable).parent / "mistify"
CONFIG = 'interval = "10ms"\n[targets]\nlatency = "60min"\n[policy]\ndwell = "20ms"\n'


class Daemon:
    """A daemon with a log that tests can wait for."""

    def __init__(self, package: Path, config: Path, *options: str) -> None:
        command = [
            str(part) for part in (MISTIFY, "monitor", "--package", package, "--config", config, *options)
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=outside()
        )

    def until(self, **wanted: object) -> dict:
        """Wait for the next entry with these fields, and return it."""
        for entry in self.entries():
            if all(entry.get(key) == value for key, value in wanted.items()):
                return entry
        raise AssertionError(f"ended without {wanted}: {self.process.stderr.read()}")

    def entries(self) -> Iterator[dict]:
        """Yield further entries as they are written."""
        yield from map(json.loads, self.process.stdout)

    def end(self, kind: signal.Signals = signal.SIGKILL) -> int:
        self.process.send_signal(kind)
        self.process.communicate()
        return self.process.returncode


def outside() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MISTIFY_")}


def mistify(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(MISTIFY), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=outside(), check=False)


def shown(*arguments: object) -> Result:
    """Run a command that only reads or writes files in this process, and return its result."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "140"})


@contextmanager
def running_app(package: Path):
    """Run inferences continuously, like an app."""
    model, image = load(package, threads=1), np.zeros((1, 4, 4, 1), np.float32)
    ending = threading.Event()

    def infer() -> None:
        while not ending.is_set():
            model(image)

    thread = threading.Thread(target=infer)
    thread.start()
    try:
        yield model
    finally:
        ending.set()
        thread.join()


class Loss:
    """Time that inferences lose outside the network; at first they sleep.

    Attributes:
        lose: function that each inference calls to lose time.
        inferences: number of inferences so far.
    """

    def __init__(self, model) -> None:
        network = model._loaded.network
        prepared, self.inferences = network.prepared, 0
        self.lose = lambda: time.sleep(0.005)

        def losing(inputs):
            run = prepared(inputs)

            def lose_and_run(values, branch):
                self.lose()
                self.inferences += 1
                return run(values, branch)

            return lose_and_run

        network.prepared = losing


def compute() -> None:
    """Use the processor for 5 ms."""
    end = time.thread_time() + 0.005
    while time.thread_time() < end:
        pass


@pytest.fixture
def package(tmp_path, data):
    """Return a package with three branches, each with ten times the expected latency of the previous one."""
    expected = tuple(branch(latency, accuracy) for latency, accuracy in ((1, 0.7), (10, 0.8), (100, 0.9)))
    return make_package(tmp_path / "package", data / "tiny_branches.tflite", (IMAGE,), (SCORES,), expected)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "monitor.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def start(package, config):
    started = []

    def start(*options: str) -> Daemon:
        started.append(Daemon(package, config, *options))
        return started[-1]

    yield start
    for daemon in started:
        daemon.end()


def test_the_daemon_switches_branches_to_follow_the_targets(package, start):
    with running_app(package) as model:
        daemon = start()
        assert daemon.until(event="switch", fits=True)["option"] == "branch-2"
        assert model.wanted == "branch-2"
        changed = shown("target", "latency=1ns", "--package", package)
        assert changed.stdout == "latency: 1ns\n"
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
    assert "write its unit" in daemon.until(event="problem", about="config")["reason"]
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
    assert "mistify target --reset" in daemon.until(event="problem", about="targets")["reason"]
    assert "Is a directory" in daemon.until(event="problem", about="status file")["reason"]
    daemon.until(event="switch", option="branch-2")
    kept = (package / "manifest.json").read_bytes()
    (package / "manifest.json").write_text("{")
    Switchboard.open(state_directory(package)).bump()
    assert "is damaged" in daemon.until(event="problem", about="package")["reason"]
    (package / "manifest.json").write_bytes(kept)
    assert "package: no problem any more" in daemon.until(event="recovered")["reason"]
    daemon.until(event="switch", option="branch-2")


@pytest.fixture
def slow_package(tmp_path, data):
    return make_package(tmp_path / "package", data / "tiny_slow.tflite", (IMAGE,), (SCORES,))


@pytest.fixture
def asking(config, service):
    """Return a config with targets that no branch ever meets."""
    (config.parent / "goal.json").write_text(json.dumps(GOAL))
    config.write_text(
        CONFIG.replace("60min", "1ns") + f'[replacement]\nserver = "{service.address}"\ngoal = "goal.json"\n'
        'after = "10ms"\nprobation = "50ms"\n'
    )
    return config


def test_a_smaller_network_is_requested_only_if_the_network_is_the_cause(slow_package, asking, service):
    """It would not help while inferences sleep: no goal is submitted, and the log says why."""
    asking.write_text(asking.read_text().replace("1ns", "1ms"))
    with held(service.fake, "SubmitBatch"), running_app(slow_package) as model:
        loss = Loss(model)
        daemon = Daemon(slow_package, asking)
        try:
            cause = daemon.until(event="cause")
            assert (cause["cause"], cause["smaller_helps"]) == ("waiting", False)
            enough = loss.inferences + 100  # half a second, although 10 ms suffice for a request
            while loss.inferences < enough:
                daemon.process.poll()
            text = shown("status", "--package", slow_package).stdout
            assert "cause: " in text
            assert "new package" not in text
            loss.lose = compute
            assert daemon.until(event="replacement")["phase"] == "submitting"
        finally:
            daemon.end()


@contextmanager
def busy(core: int, count: int):
    """Run busy processes on the core of this process until it ends, so that all share the core equally."""
    code = f"import os; os.sched_setaffinity(0, {{{core}}}); print(flush=True)\n"
    code += f"while os.getppid() == {os.getpid()}: pass"
    processes = [
        subprocess.Popen([sys.executable, "-I", "-c", code], stdout=subprocess.PIPE) for _ in range(count)
    ]
    try:
        for process in processes:
            process.stdout.readline()
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_no_smaller_network_is_requested_while_other_processes_use_the_core_of_the_app(
    slow_package, asking, service
):
    """An inference computes for 20 ms, longer than a time slice, and so waits for all others at least once.

    No network, however small, could meet the target with such a wait.
    """
    asking.write_text(asking.read_text().replace("1ns", "5ms"))
    core = min(os.sched_getaffinity(0))

    def compute_on_core() -> None:
        os.sched_setaffinity(0, {core})  # of this thread only
        for _ in range(4):
            compute()

    asks = held(service.fake, "SubmitBatch")
    with busy(core, 4), asks as asked, running_app(slow_package) as model:
        loss = Loss(model)
        loss.lose = compute_on_core
        wait_for(loss, 5)
        daemon = Daemon(slow_package, asking)
        try:
            found = next(entry for entry in daemon.entries() if entry["event"] in ("cause", "replacement"))
            assert found.get("cause") == "waiting", found
            assert not found["smaller_helps"]
            wait_for(loss, 10)
            text = shown("status", "--package", slow_package).stdout
        finally:
            daemon.end()
    assert "cause: " in text
    assert "new package" not in text
    assert not asked.reached.is_set()


def wait_for(loss: Loss, inferences: int) -> None:
    """Wait until the app has run a number of further inferences."""
    enough = loss.inferences + inferences
    while loss.inferences < enough:
        time.sleep(0.01)


HELD = {"submitting": "SubmitBatch", "adapting": "WatchJob", "downloading": "FetchPackage"}
PHASES = [*HELD, "validating", "installing", "probation"]


@pytest.mark.sampled
@pytest.mark.parametrize("phase", PHASES)
def test_the_next_daemon_completes_any_phase_in_which_one_was_killed(slow_package, asking, service, phase):
    # No branch of the new package fits either: later goals are not completed.
    # Holding the state lock keeps the first daemon from installing, so that it gets no further than its
    # phase.
    with held(service.fake, "AddGoals"), running_app(slow_package) as model:
        text = asking.read_text()
        asking.write_text(text.replace('probation = "50ms"', 'probation = "60min"'))
        first = Daemon(slow_package, asking)
        with (
            held(service.fake, HELD.get(phase, "nothing")) as gate,
            nullcontext() if phase == "probation" else locked(state_directory(slow_package)),
        ):
            goal = first.until(event="replacement", phase=phase)["goal"]
            assert phase not in HELD or gate.reached.wait(PATIENCE)
            first.end()
        asking.write_text(text)
        second = Daemon(slow_package, asking)
        try:
            if phase != "probation":
                assert second.until(event="replacement", phase="probation")["goal"] == goal
            assert second.until(event="replacement", phase="kept")["goal"] == goal
        finally:
            second.end()
    installed = current(slow_package)
    assert verify(installed).goal == goal
    assert previous(slow_package) == slow_package
    assert model.manifest.goal == goal
    submitted = service.fake.requests_of(pb.SubmitBatchRequest)
    assert len({request.idempotency_key for request in submitted}) == 1
    assert len(list((state_directory(slow_package) / "versions").iterdir())) == 1
    assert Manifest.load(slow_package).goal == "half"
