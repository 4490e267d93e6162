"""The policy decides between options with helpers and without, from what an app reports."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mistify_client.lending.placement import Placement
from mistify_client.lending.reports import HelpedTimes, LendingReporter
from mistify_client.lending.status import LendingStatus
from mistify_client.monitor.config import MonitorConfig
from mistify_client.monitor.daemon import Monitor
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.monitor.state.targets import Targets
from mistify_client.monitor.status import lines, upgraded
from mistify_client.monitor.traces.reading import read_trace
from mistify_client.monitor.traces.replay import replayed
from mistify_client.monitor.traces.writing import TraceWriter
from mistify_client.runtime.statistics import Recorder
from mistify_client.runtime.switchboard import DEFAULT_OPTION, Switchboard
from mistify_client.runtime.versions import state_directory
from tests.mistify_client.pools import SUBNETS, make_block_package, write_pool

CONTEXTUAL = {"name": "contextual", "importance": {"accuracy": 9, "latency": 3}, "battery": "ignore"}


class App:
    """An app with a helper, and a monitor of its package, on a simulated clock.

    Attributes:
        load: Ratio of latencies on this device alone to those of the pool.
        helped_ms: The times with helpers that the app reports.
    """

    def __init__(self, package: Path, policy: dict[str, object]) -> None:
        config = MonitorConfig.model_validate({"targets": {"latency": "20ms"}, "policy": policy})
        self.state = MonitorState.of(package)
        self.state.directory.mkdir(parents=True)
        self.now, self.load, self.helped_ms = 1000.0, 1.0, dict[str, float]()
        directory = state_directory(package)
        self.switchboard = Switchboard.open(directory)
        self.monitor = Monitor(
            package,
            lambda: config,
            Journal(self.state.log, None),
            trace=TraceWriter(package.with_name("trace.jsonl")),
            sensor=lambda: SensorReading(memory_available=10**9),
            clock=lambda: self.now,
        )
        self._recorder = Recorder.open(directory, len(SUBNETS), self.switchboard.generation, 1)
        self._reporter = LendingReporter(directory, lambda: self.now)

    @property
    def running(self) -> int:
        """The index of the subnet that runs; by default the best one within the budget of the pool."""
        return 1 if self.switchboard.option == DEFAULT_OPTION else self.switchboard.option

    @property
    def is_helped(self) -> bool:
        """An app asks helpers if it may, and if that is faster."""
        name = f"subnet-{self.running}"
        return not self.switchboard.alone and self.helped_ms.get(name, 1e9) < self.local_ms

    @property
    def local_ms(self) -> float:
        return SUBNETS[self.running].latency_ms * self.load

    def step(self, seconds: int) -> None:
        """Let seconds pass in which inferences run."""
        for _ in range(seconds):
            helped = self.is_helped
            ms = self.helped_ms[f"subnet-{self.running}"] if helped else self.local_ms
            for part in range(1, 9):
                ended = self.now + part / 10
                self._recorder.record(ended, ms, ms, 0.0, option=self.running, batch=1, helped=helped)
            self.now += 1
            times = HelpedTimes(f"subnet-{self.running}", self.local_ms, self.helped_ms)
            placement = Placement((), ms, self.local_ms)
            self._reporter.offer(LendingStatus(placement, ms, {}, {"local": 1}), lambda times=times: times)
            self.monitor.step()

    @property
    def option(self) -> str:
        return self.monitor._outcome.decision.option

    @property
    def status(self) -> list[str]:
        content = json.loads(self.state.status.read_text())
        return list(lines(upgraded({**content, "running": True})))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = make_block_package(tmp_path / "package")
    write_pool(package)
    return package


@pytest.fixture
def app(package: Path) -> Iterator[App]:
    app = App(package, CONTEXTUAL)
    yield app
    app.monitor.close()


def test_this_device_comes_first_and_helpers_only_while_they_score_more(app) -> None:
    app.step(3)
    assert (app.option, app.switchboard.alone) == ("subnet-1", True)
    app.load, app.helped_ms = 4.0, {"subnet-1": 17.0, "subnet-0": 9.0}
    app.step(1)
    assert (app.option, app.switchboard.alone) == ("subnet-0", True)  # 16 ms, and 40 before
    app.step(10)
    assert (app.option, app.switchboard.option, app.switchboard.alone) == ("subnet-1-helped", 1, False)
    app.load = 1.0
    app.step(1)
    assert (app.option, app.switchboard.alone) == ("subnet-1", True)  # 10 ms


def test_a_helper_that_vanishes_is_left_at_once(app) -> None:
    app.load, app.helped_ms = 4.0, {"subnet-1": 17.0}
    app.step(10)
    assert app.option == "subnet-1-helped"
    app.helped_ms = {}
    app.step(1)
    assert (app.option, app.switchboard.alone) == ("subnet-0", True)


def test_helpers_are_asked_at_once_if_this_device_alone_misses_the_limits(app) -> None:
    app.step(3)
    app.load, app.helped_ms = 6.0, {"subnet-1": 17.0}  # 24 ms with the faster subnet
    app.step(1)
    assert app.option == "subnet-1-helped"


def test_a_helper_that_saves_little_is_no_option(app) -> None:
    app.load, app.helped_ms = 4.0, {"subnet-1": 37.0, "subnet-0": 15.2}
    app.step(5)
    assert [option.id for option in app.monitor._outcome.situation.options] == ["subnet-0", "subnet-1"]
    app.helped_ms = {"subnet-1": 35.9, "subnet-0": 14.4}
    app.step(5)
    assert "subnet-1-helped" in [option.id for option in app.monitor._outcome.situation.options]


def test_the_load_is_known_while_all_inferences_run_with_helpers(app) -> None:
    app.load, app.helped_ms = 6.0, {"subnet-1": 17.0}
    app.step(5)
    app.load = 7.0
    app.step(2)
    situation = app.monitor._outcome.situation
    assert (app.option, situation.idle) == ("subnet-1-helped", False)
    assert situation.ratio == pytest.approx(7.0)
    assert situation.conditions.helped_ms == {"subnet-1-helped": 17.0}


def test_the_log_and_the_status_say_where_inferences_run_and_why(app) -> None:
    app.load, app.helped_ms = 6.0, {"subnet-1": 17.0}
    app.step(12)
    shown = app.status
    assert "placement: with a helper; subnet-1 takes 17ms with a helper and 60ms alone" in shown
    assert any(line.startswith("* subnet-1-helped: 17ms now") for line in shown)
    assert any(line.startswith("measured: 17ms per inference") for line in shown)
    entries = [json.loads(line) for line in app.state.log.read_text().splitlines()]
    (entry,) = [entry for entry in entries if entry["event"] == "switch"]
    assert (entry["previous"], entry["option"]) == ("subnet-1", "subnet-1-helped")
    assert "without a helper it would take 60ms" in entry["reason"]


def test_another_policy_leaves_helpers_to_the_apps(package) -> None:
    app = App(package, {})
    app.load, app.helped_ms = 4.0, {"subnet-1": 17.0}
    app.switchboard.forbid_helpers(60)
    app.step(3)
    assert (app.option, app.switchboard.alone) == ("subnet-0", False)
    app.monitor.close()


def test_apps_decide_when_the_monitor_has_ended(app) -> None:
    app.step(2)
    assert app.switchboard.alone
    app.monitor.close()
    assert not app.switchboard.alone


def test_a_recorded_trace_leads_to_the_same_decisions(app, package) -> None:
    app.step(3)
    app.load, app.helped_ms = 4.0, {"subnet-1": 17.0}
    app.step(10)
    policy = MonitorConfig.model_validate({"policy": CONTEXTUAL}).make_policy
    trace = package.with_name("trace.jsonl")
    steps = list(replayed(read_trace(trace), policy, Targets(latency="20ms")))
    decided, ran = [step.decision.option for step in steps], [step.recorded for step in steps]
    assert decided[1:] == [*ran[2:], app.option]
    assert steps[-1].decision.option == "subnet-1-helped"
