"""Daemons that request a smaller network, next to an app that uses the package."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext

import pytest

from mistify.files.locking import locked
from mistify.package.manifest import Manifest
from mistify.package.verification import verify
from mistify.v1 import porting_pb2 as pb
from mistify_client.runtime.versions import current, previous, state_directory
from tests.mistify_client.monitor.adapting import PATIENCE, held
from tests.mistify_client.monitor.daemons import CONFIG, Daemon, running_app, shown
from tests.mistify_client.monitor.test_config import GOAL
from tests.support.tiny_packages import IMAGE, SCORES, make_package


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
            first = next(entry for entry in daemon.entries() if entry["event"] in ("cause", "replacement"))
            assert first.get("cause") == "waiting", first
            assert not first["smaller_helps"]
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
