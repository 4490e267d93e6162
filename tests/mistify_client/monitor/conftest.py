"""A simulated device with its own clock: a load trace determines latencies, and no test has to wait."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from mistify.config.data.metric import Metric
from mistify.package.manifest import Branch, Manifest, MeasuredLatency, Versions
from mistify_client.monitor.foreground import Foreground, IntervalOutcome
from mistify_client.monitor.policies.base import Policy
from mistify_client.monitor.policies.predictive import PredictiveParams, PredictivePolicy
from mistify_client.monitor.sensing.sensors import Sensor, SensorReading
from mistify_client.monitor.slices import BackgroundSlices
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.targets import Targets
from mistify_client.runtime.statistics import Recorder
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import state_directory
from tests.mistify_client.conftest import running
from tests.mistify_client.monitor.adapting import adapting_fake
from tests.mistify_client.monitor.daemons import CONFIG, Daemon
from tests.support.tiny_packages import IMAGE, SCORES, make_package

EXPECTED_MS = (4.0, 10.0, 25.0)
ACCURACIES = (0.7, 0.8, 0.9)
INTERVAL = 0.25


def measured(median_ms: float) -> MeasuredLatency:
    return MeasuredLatency(
        median_ms=median_ms,
        p95_ms=2 * median_ms,
        runs=50,
        threads=1,
        machine="x86_64",
        runtime="LiteRT 2.3.0",
    )


def branch(latency_ms: float, accuracy: float, memory: float = 1000.0) -> Branch:
    return Branch(
        share=latency_ms / EXPECTED_MS[0],
        achieved={
            "flops": 1e6 * latency_ms,
            "memory_bytes": memory,
            "latency_ms@board": 10 * latency_ms,
        },
        accuracy=accuracy / 2,  # test accuracy, which must not influence choices
        validation_accuracy=accuracy,
        latency=measured(latency_ms),
    )


def manifest(branches: Sequence[Branch] = (), default_branch: int = 1, **changes: object) -> Manifest:
    own = branches[default_branch] if branches else branch(10.0, 0.8)
    values = {
        "job": "job-0",
        "goal": "shipped",
        "budget": {"latency_ms@host": 10.0},
        "achieved": own.achieved,
        "accuracy": own.accuracy,
        "validation_accuracy": own.validation_accuracy,
        "latency": own.latency,
        "inputs": (),
        "outputs": (),
        "branches": tuple(branches),
        "default_branch": default_branch if branches else 0,
        "versions": Versions(mistify="0.1.0", tensorflow="2.21.0", keras="3.15.1"),
        "files": {},
        "created": datetime(2026, 1, 2, tzinfo=UTC),
    }
    return Manifest.model_validate(values | changes)


def three_branches(metric: Metric = Metric.ACCURACY) -> Manifest:
    return manifest(
        [
            branch(latency, accuracy, memory)
            for latency, accuracy, memory in zip(EXPECTED_MS, ACCURACIES, (1e6, 2e6, 3e6), strict=True)
        ],
        metric=metric,
    )


def branched_package(directory: Path, network: Path) -> Path:
    """Make a package of three branches, each with ten times the expected latency of the previous one."""
    expected = tuple(branch(latency, accuracy) for latency, accuracy in ((1, 0.7), (10, 0.8), (100, 0.9)))
    return make_package(directory, network, (IMAGE,), (SCORES,), expected)


@pytest.fixture
def turns() -> Callable[[], float]:
    """Return a clock on which calls take 1 ms (candidate) and 3 ms (package in use) alternately."""
    durations = itertools.cycle([0.0, 0.001, 0.0, 0.003])
    return itertools.accumulate(durations).__next__


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a package with three branches that consists only of a manifest."""
    directory = tmp_path / "package"
    directory.mkdir()
    three_branches().save(directory)
    return directory


def foreground_of(package: Path, policy: Policy, sensor: Sensor, hardware: str = "host") -> Foreground:
    """Return the foreground path of a package's monitor."""
    slices = BackgroundSlices(package, Journal(package.with_name("decisions.jsonl"), None))
    return Foreground(package, policy, sensor, hardware, slices)


def steady(now: float) -> float:
    return 1.0


@dataclass
class Device:
    """A device that runs inferences one after another, and makes one decision per interval.

    Attributes:
        load: maps the time in seconds to the ratio of actual to expected latency.
        deviations: an additional latency factor of each branch.
        noise: standard deviation of the logarithm of a random latency factor.
        pause: seconds between inferences; None for no inferences.
    """

    package: Path
    policy: Policy = field(default_factory=lambda: PredictivePolicy(PredictiveParams()))
    targets: Targets = field(default_factory=lambda: Targets(latency="20ms"))
    load: Callable[[float], float] = steady
    deviations: Sequence[float] = (1.0, 1.0, 1.0)
    noise: float = 0.0
    pause: float | None = 0.0
    reading: Callable[[float], SensorReading] = lambda now: SensorReading()
    now: float = 1000.0
    outcomes: list[IntervalOutcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        state = state_directory(self.package)
        self.switchboard = Switchboard.open(state)
        self.manifest = Manifest.load(self.package)
        self.recorder = Recorder.open(state, len(self.manifest.branches) or 1, self.switchboard.generation, 1)
        self.foreground = foreground_of(self.package, self.policy, lambda: self.reading(self.now))
        self.random = np.random.default_rng(5)
        self.free_at = self.now

    @property
    def branch(self) -> int:
        """Return the branch that the next inference will run."""
        switched = self.switchboard.option
        return self.manifest.default_branch if switched < 0 else switched

    @property
    def switches(self) -> list[IntervalOutcome]:
        return [outcome for outcome in self.outcomes if outcome.switched]

    def latency_ms(self, branch: int, now: float) -> float:
        """Return the latency of an inference without noise."""
        return EXPECTED_MS[branch] * self.deviations[branch] * self.load(now)

    def run(self, seconds: float) -> IntervalOutcome:
        """Advance the clock, and return the last decision."""
        for _ in range(round(seconds / INTERVAL)):
            before, self.now = self.now, self.now + INTERVAL
            self._infer(self.now)
            self.outcomes.append(self.foreground.step(self.now, before, self.targets))
        return self.outcomes[-1]

    def _infer(self, until: float) -> None:
        while self.pause is not None:
            took = self.latency_ms(self.branch, self.free_at) * np.exp(self.noise * self.random.normal())
            ended = self.free_at + took / 1000
            if ended > until:
                return
            self.recorder.record(ended, took, took, 0.0, option=self.branch, batch=1)
            self.free_at = ended + self.pause
        self.free_at = until


@pytest.fixture
def device(package: Path) -> Callable[..., Device]:
    return lambda **settings: Device(package, **settings)


@pytest.fixture
def service(data):
    """Yield a porting service that adapts immediately, or once a test opens a gate."""
    with running(adapting_fake(data / "tiny.tflite")) as service:
        yield service


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return the config of a monitor whose target all options meet."""
    path = tmp_path / "monitor.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def start(package: Path, config: Path) -> Iterator[Callable[..., Daemon]]:
    """Yield a function that starts daemons, which end with the test."""
    started: list[Daemon] = []

    def start(*options: str) -> Daemon:
        started.append(Daemon(package, config, *options))
        return started[-1]

    yield start
    for daemon in started:
        daemon.end()
