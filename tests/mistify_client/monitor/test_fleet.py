"""A monitor on a simulated clock reports the status of a device to a service over real gRPC."""

from datetime import UTC, datetime
from socket import gethostname

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.monitor.config import MonitorConfig
from mistify_client.monitor.daemon import Monitor
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.runtime.statistics import Recorder
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import state_directory
from tests.mistify_client.device_service import Devices, serve
from tests.mistify_client.monitor.adapting import PATIENCE, Entries
from tests.mistify_client.monitor.conftest import EXPECTED_MS
from tests.support.ports import reserved_address


class Site:
    """A package with three branches and a monitor that reports; `step` lets seconds pass."""

    def __init__(self, package, address):
        self.devices, self.address = Devices(), address
        self.server = serve(self.devices, address)
        self.state = MonitorState.of(package)
        self.state.directory.mkdir(parents=True)
        self.switchboard = Switchboard.open(state_directory(package))
        self.recorder = Recorder.open(state_directory(package), 3, self.switchboard.generation, 1)
        self.entries, self.now = Entries(), 1000.0
        fleet = {"server": self.address, "name": "kitchen-7", "every": "60s"}
        config = MonitorConfig.model_validate({"targets": {"latency": "20ms"}, "fleet": fleet})
        self.monitor = Monitor(
            package,
            lambda: config,
            Journal(self.state.log, self.entries),
            sensor=SensorReading,
            clock=lambda: self.now,
        )

    def step(self, load, seconds=1):
        """Let seconds pass in which inferences take `load` times the expected latency."""
        for _ in range(seconds):
            branch = max(self.switchboard.option, 0)
            for part in range(1, 9):
                takes = EXPECTED_MS[branch] * load
                self.recorder.record(self.now + part / 10, takes, takes, 0.0, option=branch, batch=1)
            self.now += 1
            self.monitor.step()
            self.settle()

    def settle(self):
        """Wait until the current report has been sent."""
        thread = self.monitor._fleet._thread
        if thread is not None:
            thread.join(PATIENCE)

    @property
    def received(self):
        """Return the statuses received since the last call."""
        return [self.devices.statuses.get_nowait() for _ in range(self.devices.statuses.qsize())]


@pytest.fixture
def site(package):
    with reserved_address() as address:
        site = Site(package, address)
        yield site
        site.monitor.close()
        site.server.stop(None).wait()


def test_changes_are_reported_immediately_and_the_rest_once_a_minute(site):
    site.step(1.0, 3)
    (first,) = site.received
    assert (first.name, first.goal_id, first.options) == ("kitchen-7", "shipped", 3)
    assert (first.option, first.fits, first.targets) == ("branch-1", True, {"latency": "20ms"})
    assert first.expected_ms == first.latency_ms == pytest.approx(EXPECTED_MS[1])
    assert first.last_switch is None
    site.step(1.0, 56)
    assert site.received == []
    site.step(1.0, 10)
    assert len(site.received) == 1
    before = datetime.now(UTC).timestamp()
    site.step(3.0, 2)
    *_, switched = site.received
    assert (switched.option, switched.last_switch.previous) == ("branch-0", "branch-1")
    assert switched.last_switch.reason == switched.reason
    assert before <= switched.last_switch.unix_ms / 1000 <= datetime.now(UTC).timestamp()
    assert switched.latency_ms == pytest.approx(3 * EXPECTED_MS[0], rel=0.1)


def test_a_server_gets_the_most_recent_status_when_it_is_reachable_again(site):
    site.server.stop(None).wait()
    site.now += 1
    site.monitor.step()
    assert "no server answers" in site.entries.until(event="problem", about="fleet")["reason"]
    site.server = serve(site.devices, site.address)
    status = site.devices.statuses.get(timeout=PATIENCE)
    assert status.problems == {}
    site.entries.until(event="recovered")


def test_a_refused_report_is_retried_at_the_next_regular_time(site):
    site.devices.error = MistifyError(ErrorCode.NO_ROOM, "too many devices")
    site.step(1.0, 10)
    assert site.entries.until(event="problem", about="fleet")["reason"] == "too many devices"
    site.devices.error = None
    site.step(1.0, 45)
    assert site.received == []
    site.step(1.0, 15)
    assert len(site.received) == 1


def test_a_status_that_cannot_be_sent_is_a_problem_until_another_one_can(site):
    """A path may have bytes that are no text."""
    site.monitor._journal.problem("targets", "\udcff cannot be read")
    site.step(1.0)
    assert "surrogates not allowed" in site.entries.until(event="problem", about="fleet")["reason"]
    site.monitor._journal.problem("targets", None)
    site.step(1.0)
    assert len(site.received) == 1


def test_the_host_name_is_reported_unless_the_config_has_a_name():
    config = MonitorConfig.model_validate({"fleet": {"server": "127.0.0.1:1"}})
    assert config.fleet.name == gethostname()
