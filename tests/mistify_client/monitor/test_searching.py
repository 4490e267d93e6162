"""If no subnet of the pool fits, others are searched before a new package is requested."""

import json
import os

import numpy as np
import pytest

from mistify.package.opened import Package
from mistify.parsing.quantities import parse_time
from mistify_client.assembly.pool import SubnetPool
from mistify_client.monitor.config import MonitorConfig
from mistify_client.monitor.daemon import Monitor
from mistify_client.monitor.replacement.ledger import Ledger
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.runtime.statistics import Recorder
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.version_options import install_options
from mistify_client.runtime.versions import state_directory
from mistify_client.subnets.search_session import adapt
from tests.mistify_client.monitor.adapting import Entries
from tests.mistify_client.monitor.daemons import shown
from tests.mistify_client.monitor.test_config import GOAL
from tests.mistify_client.pools import make_elastic_package, set_latencies
from tests.support import elastic_stores

RATIO = 3.0


class Narrow:
    """A package whose pool has only the fastest subnet, with a monitor on a simulated clock.

    Inferences take three times the expected latency.

    Attributes:
        whole: the complete pool, before it was reduced.
    """

    def __init__(self, tmp_path):
        self.package, self.data = make_elastic_package(tmp_path / "package"), tmp_path / "mine.npz"
        set_latencies(self.package)
        images, classes = elastic_stores.digits()
        np.savez(self.data, x=images[1000:1100], y=classes[1000:1100])
        self.whole = adapt(self.package, self.data, parse_time("1x")).pool
        narrow = self.whole.model_copy(update={"entries": self.whole.entries[:1]})
        install_options(self.package, narrow, expected=self.package)
        (tmp_path / "goal.json").write_text(json.dumps(GOAL))
        self.state = MonitorState.of(self.package)
        self.state.directory.mkdir(parents=True)
        self.entries, self.now = Entries(), 1000.0
        self.goal = tmp_path / "goal.json"
        self.switchboard = Switchboard.open(state_directory(self.package))

    def watch(self, latency_ms, accuracy=None, **settings):
        targets = {"latency": f"{latency_ms}ms"} | ({} if accuracy is None else {"accuracy": accuracy})
        asks = {"server": "127.0.0.1:1", "goal": self.goal, "after": "10s"}
        config = MonitorConfig.model_validate({"targets": targets, "replacement": asks, "search": settings})
        self.monitor = Monitor(
            self.package,
            lambda: config,
            Journal(self.state.log, self.entries),
            sensor=SensorReading,
            clock=lambda: self.now,
        )

    @property
    def pool(self):
        return SubnetPool.load(state_directory(self.package), Package.open(self.package))

    def step(self, seconds):
        """Let seconds pass in which an app runs the chosen subnet."""
        for _ in range(seconds):
            entries = self.pool.entries
            recorder = Recorder.open(
                state_directory(self.package), len(entries), self.switchboard.generation, 1
            )
            chosen = self.switchboard.option
            option = entries.index(self.pool.best()) if chosen < 0 else chosen
            for part in range(1, 9):
                takes = RATIO * entries[option].latency_ms
                recorder.record(self.now + part / 10, takes, takes, 0.0, option=option, batch=1)
            self.now += 1
            self.monitor.step()

    @property
    def process(self):
        return self.monitor._search._search.process

    @property
    def asked(self):
        return len(Ledger(self.state.replacement).requested)


@pytest.fixture
def narrow(tmp_path):
    narrow = Narrow(tmp_path)
    yield narrow
    narrow.monitor.close()


def test_other_subnets_are_searched_and_run_if_they_fit(narrow):
    best = narrow.whole.entries[-1]
    narrow.watch(2 * RATIO * best.latency_ms, best.accuracy, after="5s")
    narrow.step(5)
    assert not narrow.monitor._outcome.decision.fits
    assert narrow.monitor._search.budget_ms is None
    narrow.step(2)
    assert os.getpriority(os.PRIO_PROCESS, narrow.process.pid) == 19
    began = narrow.entries.until(event="search")
    assert began["budget_ms"] == pytest.approx(2 * best.latency_ms, rel=1e-3)
    status = shown("status", "--package", narrow.package).stdout
    assert "searching for other subnets within" in status
    narrow.step(30)
    assert narrow.asked == 0  # however long it takes
    assert narrow.process.wait() == 0
    narrow.step(8)
    assert narrow.entries.until(event="search")["reason"] == "the search for other subnets has ended"
    assert narrow.pool.entries[-1] == best
    assert narrow.monitor._outcome.decision.fits
    assert narrow.monitor._outcome.decision.option == f"subnet-{len(narrow.pool.entries) - 1}"
    assert narrow.asked == 0
    assert narrow.pool.budget_ms == pytest.approx(2 * best.latency_ms, rel=1e-3)


def test_a_new_package_is_requested_if_the_search_finds_no_fast_enough_subnet(narrow):
    narrow.watch(0.5 * RATIO * narrow.whole.entries[0].latency_ms, after="5s")
    before = narrow.pool
    narrow.step(7)
    assert narrow.process.wait() == 2
    narrow.step(2)
    reason = narrow.entries.until(event="problem", about="search")["reason"]
    assert reason.startswith("no other subnets were found: ")
    assert "which the fastest subnet takes on this device" in reason
    narrow.step(5)
    assert narrow.asked == 0
    narrow.step(6)
    assert narrow.asked == 1
    narrow.step(60)
    assert narrow.monitor._search.budget_ms is None  # only one search
    assert narrow.pool == before


def test_missing_data_is_a_problem_and_a_new_package_is_requested(narrow):
    narrow.watch(2 * RATIO * narrow.whole.original_ms, 1.0)
    narrow.data.unlink()
    narrow.step(12)
    narrow.process.wait()
    narrow.step(1)
    problem = narrow.entries.until(event="problem", about="search")
    assert str(narrow.data) in problem["reason"]
    narrow.step(12)
    assert narrow.asked == 1


def test_a_search_that_was_killed_is_repeated_later(narrow):
    narrow.watch(2 * RATIO * narrow.whole.original_ms, 1.0, after="1s")
    narrow.step(3)
    first = narrow.process
    first.kill()
    first.wait()
    narrow.step(3)
    assert "ended with -9" in narrow.entries.until(event="problem", about="search")["reason"]
    assert narrow.monitor._search.budget_ms is None
    narrow.now += 600
    narrow.step(2)
    assert narrow.process.pid != first.pid


def test_a_search_ends_with_its_daemon(narrow):
    narrow.watch(2 * RATIO * narrow.whole.original_ms, 1.0, after="1s")
    before = narrow.pool
    narrow.step(3)
    process = narrow.process
    narrow.monitor.reload()
    assert narrow.process is process
    narrow.monitor.close()
    assert process.returncode == -9
    assert narrow.pool == before


def test_a_new_package_is_requested_directly_if_searches_are_disabled(narrow):
    narrow.watch(2 * RATIO * narrow.whole.original_ms, 1.0, enabled=False)
    narrow.step(12)
    assert narrow.monitor._search.budget_ms is None
    assert narrow.asked == 1
