"""Latency reports to a service over real gRPC, on a simulated clock."""

import shutil

import pytest

from mistify.ed25519 import PrivateKey
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify_client.monitor.config import ReportingConfig
from mistify_client.monitor.reporting import Reporting
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.rpc.retry import Backoff
from mistify_client.runtime.trust import Trust
from mistify_client.runtime.versions import current, install, roll_back
from tests.mistify_client.device_service import Devices, serve
from tests.mistify_client.monitor.adapting import Entries
from tests.support.ports import reserved_address
from tests.support.signed_packages import sign_package
from tests.support.tiny_packages import make_package
from tests.support.tokens import write_token


class Site:
    """A package and daemons that report its latency; `let_pass` advances their clock."""

    def __init__(self, package, address):
        self.package = package
        self.devices, self.address = Devices(), address
        self.server = serve(self.devices, address)
        self.state = MonitorState.of(package)
        self.state.directory.mkdir(parents=True)
        self.measured, self.takes, self.now = [], 0.75, 1000.0
        self.reporting, self.trust = None, None
        self.daemon()

    def daemon(self, **changes):
        self.stop()
        self.entries = Entries()
        values = {"server": self.address, "device": "my-board", "quiet": "10s"}
        config = ReportingConfig.model_validate(values | changes)
        self.reporting = Reporting(
            self.package,
            self.state.reports,
            config,
            Journal(self.state.log, self.entries),
            trust=self.trust,
            retry=Backoff(first=0.01, longest=0.05),
            measure=self.measure,
        )

    def measure(self, package):
        self.measured.append(package)
        if isinstance(self.takes, Exception):
            raise self.takes
        return self.takes

    def let_pass(self, seconds, free):
        for _ in range(seconds):
            self.now += 1
            self.reporting.observe(self.now, Manifest.load(current(self.package)), free)

    def settle(self):
        """Wait until the reporting thread, if any, has finished."""
        if self.reporting._thread is not None:
            self.reporting._thread.join()

    def stop(self):
        if self.reporting is not None:
            self.reporting.stop()


@pytest.fixture
def site(package):
    with reserved_address() as address:
        site = Site(package, address)
        yield site
        site.stop()
        site.server.stop(None).wait()


def test_a_version_of_a_server_that_is_not_trusted_is_not_measured(site, package, tmp_path):
    ours, theirs = PrivateKey.generate(), PrivateKey.generate()
    foreign = shutil.copytree(package, tmp_path / "foreign")
    sign_package(foreign, theirs)
    sign_package(package, ours)
    install(package, foreign)
    site.trust = Trust.of([ours.public], "trusted")
    site.daemon()
    site.let_pass(11, free=1.0)
    assert "is not from a trusted server" in site.entries.until(event="problem")["reason"]
    roll_back(package)
    while not site.measured:
        site.let_pass(11, free=1.0)
    assert site.measured == [package]


def test_a_package_is_measured_once_when_the_device_is_quiet(site, package):
    site.let_pass(11, 0.95)
    entry = site.entries.until(event="latency")
    assert entry["reason"] == "750us, predicted 500us; predictions are now times 1.25"
    site.settle()
    site.let_pass(30, 1.0)
    site.settle()
    site.daemon()
    site.let_pass(30, 1.0)
    site.settle()
    assert site.measured == [package]
    assert site.devices.reports == [("my-board", "job-0", "shipped", 0.75)]


@pytest.mark.parametrize("free", [0.85, None])
def test_nothing_is_measured_while_the_device_is_busy_or_its_load_is_unknown(site, free):
    for _ in range(3):
        site.let_pass(9, 1.0)
        site.let_pass(1, free)
    site.let_pass(10, 1.0)
    site.settle()
    assert site.measured == []


def test_a_new_version_is_measured_as_well(site, tmp_path, data):
    site.let_pass(11, 1.0)
    site.entries.until(event="latency")
    other = make_package(tmp_path / "other", data / "tiny.tflite", (), ())
    install(site.package, other)
    site.daemon()
    site.let_pass(11, 1.0)
    site.entries.until(event="latency", goal="half")
    assert [report[2] for report in site.devices.reports] == ["shipped", "half"]


def test_an_unreachable_server_gets_the_report_later_without_a_new_measurement(site):
    site.server.stop(None).wait()
    site.let_pass(11, 1.0)
    assert "no server answers" in site.entries.until(event="problem")["reason"]
    site.daemon()
    site.let_pass(1, 0.0)
    site.entries.until(event="problem")
    site.server = serve(site.devices, site.address)
    site.entries.until(event="latency")
    assert len(site.measured) == 1
    assert len(site.devices.reports) == 1


def test_a_temporarily_missing_token_is_awaited(site, tmp_path):
    site.daemon(token_file=tmp_path / "token")
    site.let_pass(11, 1.0)
    assert "the token cannot be read" in site.entries.until(event="problem")["reason"]
    write_token(tmp_path / "token", "right")
    assert "predicted" in site.entries.until(event="latency")["reason"]
    assert len(site.devices.reports) == 1


def test_a_refused_report_is_not_repeated(site):
    site.devices.error = MistifyError(ErrorCode.NOT_FOUND, "nothing was predicted")
    site.let_pass(11, 1.0)
    assert "nothing was predicted" in site.entries.until(event="latency")["reason"]
    site.settle()
    site.devices.error = None
    site.let_pass(11, 1.0)
    site.settle()
    assert site.devices.reports == []


def test_a_failed_measurement_is_retried_later(site):
    site.takes = RuntimeError("out of memory")
    site.let_pass(11, 1.0)
    assert "out of memory" in site.entries.until(event="problem")["reason"]
    site.reporting.stop()
    site.takes = 0.75
    site.let_pass(9, 1.0)
    assert len(site.measured) == 1


def test_an_invalid_state_file_is_rewritten(site):
    site.state.reports.write_text('{"job-0/shipped": 5')
    site.daemon()
    site.let_pass(11, 1.0)
    site.entries.until(event="latency")
    site.daemon()
    site.let_pass(11, 1.0)
    site.settle()
    assert len(site.measured) == 1
