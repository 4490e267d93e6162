"""The monitor of a package with subnets."""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest

from mistify.config.data.metric import Metric
from mistify.errors import ErrorCode, MistifyError
from mistify.fleet import DevicePool, DeviceSubnet, check_status
from mistify.package.manifest import Manifest
from mistify_client import load
from mistify_client.monitor.config import MonitorConfig
from mistify_client.monitor.daemon import Monitor
from mistify_client.monitor.fleet import device_status
from mistify_client.monitor.replacement.candidate import try_candidate
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.monitor.state.targets import write_changes
from mistify_client.runtime.paged import RETRY_SECONDS
from mistify_client.runtime.statistics import Recorder
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import state_directory
from tests.mistify_client.monitor.adapting import Entries
from tests.mistify_client.monitor.daemons import Daemon, shown
from tests.mistify_client.pools import FAST, SUBNETS, make_block_package, write_pool
from tests.support.block_stores import HALVED, images


@pytest.fixture
def package(tmp_path):
    package = make_block_package(tmp_path / "package")
    write_pool(package)
    return package


class Watched:
    """A package with a monitor on a simulated clock.

    An app loads the chosen subnet in the next second, or fails to.

    Attributes:
        running: number of the subnet that the app runs.
        able: whether the app can load subnets.
    """

    def __init__(self, package):
        config = MonitorConfig.model_validate({"targets": {"latency": "20ms"}})
        self.state = MonitorState.of(package)
        self.state.directory.mkdir(parents=True)
        self.entries = Entries()
        self.now, self.running, self.able = 1000.0, 1, True
        self.switchboard = Switchboard.open(state_directory(package))
        self.recorder = Recorder.open(state_directory(package), len(SUBNETS), self.switchboard.generation, 1)
        self.monitor = Monitor(
            package,
            lambda: config,
            Journal(self.state.log, self.entries),
            sensor=SensorReading,
            clock=lambda: self.now,
        )

    def step(self, load, seconds):
        """Let seconds pass in which inferences take `load` times the latency in the pool."""
        for _ in range(seconds):
            chosen = self.switchboard.option
            for part in range(1, 9):
                takes = SUBNETS[self.running].latency_ms * load
                self.recorder.record(self.now + part / 10, takes, takes, 0.0, option=self.running, batch=1)
            if self.able and chosen >= 0:
                self.running = chosen
            self.now += 1
            self.monitor.step()

    @property
    def status(self):
        return json.loads(self.state.status.read_text())


@pytest.fixture
def watched(package):
    watched = Watched(package)
    yield watched
    watched.monitor.close()


def most_accurate(load):
    """Find the most accurate subnet within the target by brute force."""
    return max(n for n, entry in enumerate(SUBNETS) if entry.latency_ms * load <= 20)


@pytest.mark.parametrize("load", [1.0, 1.9, 2.1, 4.9])
def test_the_most_accurate_subnet_within_the_target_runs(watched, load):
    watched.step(load, 10)
    assert watched.running == most_accurate(load)
    assert watched.status["fits"]
    watched.step(1.0, 10)
    assert watched.running == 1


def test_inferences_during_loading_count_for_the_subnet_that_ran(watched):
    """The ratio equals the load whichever subnet runs, and the switch causes no corrections."""
    watched.step(1.0, 3)
    watched.able = False
    watched.step(4.0, 3)
    assert (watched.switchboard.option, watched.running) == (0, 1)
    assert watched.monitor._outcome.situation.ratio == pytest.approx(4.0, rel=1e-6)
    watched.able = True
    watched.step(4.0, 3)
    assert watched.running == 0
    assert watched.monitor._outcome.situation.ratio == pytest.approx(4.0, rel=1e-6)
    expected = [option.costs.latency_ms for option in watched.monitor._outcome.situation.options]
    assert expected == pytest.approx([entry.latency_ms for entry in SUBNETS], rel=1e-6)


def test_an_app_that_cannot_load_a_subnet_is_a_problem_until_it_can(watched):
    watched.able = False
    watched.step(4.0, int(RETRY_SECONDS))
    assert watched.switchboard.option == 0
    assert "options" not in watched.status["problems"]
    watched.step(4.0, 3)
    problem = watched.entries.until(event="problem", about="options")
    expected = "an app still runs subnet-1, because it cannot load subnet-0: its log says why"
    assert problem["reason"] == expected
    watched.able = True
    watched.step(4.0, 3)
    assert watched.entries.until(event="recovered")["reason"] == "options: no problem any more"
    assert watched.status["problems"] == {}


def test_status_shows_subnets_and_their_blocks(package, watched):
    watched.step(3.0, 8)
    options = watched.status["options"]
    assert [(each["id"], each["kind"]) for each in options] == [
        ("subnet-0", "subnet"),
        ("subnet-1", "subnet"),
    ]
    assert [(each["blocks"], each["engine"]) for each in options] == [
        (list(entry.files), {"execution": "interpreter", "threads": 1, "mapped_weights": False})
        for entry in SUBNETS
    ]
    assert [each["accuracy"] for each in options] == [0.7, 0.9]
    assert watched.status["option"] == "subnet-0"
    text = shown("status", "--package", package).stdout
    lines = text.splitlines()
    assert "* subnet-0: 12ms now, 4ms expected, agreement 0.7, " in text
    assert "  subnet-1: 30ms now, 10ms expected, agreement 0.9, " in text
    assert "subnets: 2, scored on 100 examples; the original network is expected to take 10ms" in lines
    pool = watched.status["pool"]
    assert (pool["metric"], pool["examples"], pool["original_ms"]) == ("agreement", 100, 10.0)
    assert (pool["budget_ms"], pool["data"], pool["strategy"]) == (20.0, "mine.npz", "additive")
    assert watched.status["reason"].startswith("subnet-0 takes 12ms at the measured ratio 3.00")


@pytest.mark.parametrize(
    ("package_metric", "pool_metric", "counts"),
    [(Metric.ACCURACY, Metric.AGREEMENT, True), (Metric.MSE, Metric.MSE, True), (Metric.MAE, "other", False)],
)
def test_an_accuracy_target_applies_if_subnets_are_scored_by_accuracy(
    package, package_metric, pool_metric, counts
):
    Manifest.load(package).model_copy(update={"metric": package_metric}).save(package)
    write_pool(package, metric=pool_metric)
    watched = Watched(package)
    write_changes(watched.state.targets, {"accuracy": "0.8"})
    watched.step(1.0, 3)
    problem = (
        f"the accuracy target is ignored: it is in {package_metric}, but subnets are scored by other on "
        "this device"
    )
    assert watched.status["problems"] == ({} if counts else {"accuracy": problem})
    expected = {"latency": "20ms"} | ({"accuracy": "80%"} if counts else {})
    assert watched.status["targets"] == expected
    watched.monitor.close()


def test_the_pool_is_reported_to_the_server(package, watched):
    watched.step(1.0, 2)
    status = device_status("kitchen-7", watched.monitor._outcome, None, {})
    assert (status.option, status.options) == ("subnet-1", 2)
    subnets = tuple(DeviceSubnet(entry.latency_ms, entry.accuracy) for entry in SUBNETS)
    assert status.pool == DevicePool(Metric.AGREEMENT, 100, 10.0, subnets)
    check_status(status)
    many = watched.monitor._outcome.pool.model_copy(update={"entries": 60 * SUBNETS})
    outcome = replace(watched.monitor._outcome, pool=many)
    check_status(device_status("kitchen-7", outcome, None, {}))


def test_a_daemon_switches_the_subnet_of_an_app(package, tmp_path):
    write_pool(package, budget_ms=5.0)  # so that the fast subnet runs first
    config = tmp_path / "monitor.toml"
    config.write_text('interval = "10ms"\n[targets]\nlatency = "60min"\n[policy]\ndwell = "20ms"\n')
    model, ending = load(package), threading.Event()
    fast = model(images(1))

    def infer():
        while not ending.is_set():
            model(images(1))

    thread = threading.Thread(target=infer)
    thread.start()
    daemon = Daemon(package, config)
    try:
        assert model.running == "subnet-0"
        assert daemon.until(event="switch")["option"] == "subnet-1"
        while model.running != "subnet-1":
            model(images(1))
        assert not np.array_equal(model(images(1)), fast)
        assert shown("target", "latency=1ns", "--package", package).exit_code == 0
        assert daemon.until(event="switch", option="subnet-0")["reason"].endswith(
            "no option meets the targets"
        )
        while model.running != "subnet-0":
            model(images(1))
        np.testing.assert_array_equal(model(images(1)), fast)
    finally:
        ending.set()
        thread.join()
        daemon.end()


def test_a_new_package_is_compared_with_the_fastest_subnet(package, tmp_path, turns):
    other = tmp_path / "other"
    other.mkdir()
    candidate = make_block_package(other / "package")
    assert try_candidate(candidate, package, clock=turns).running_ms == pytest.approx(3)
    (package / HALVED).unlink()
    assert HALVED in FAST
    with pytest.raises(MistifyError, match=HALVED) as caught:
        try_candidate(candidate, package, clock=turns)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
