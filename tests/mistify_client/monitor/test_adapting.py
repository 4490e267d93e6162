"""The adaptation of a monitor: a thread of its own, its log, status and reports, with real packages."""

import json
import os
import time
from contextlib import closing, contextmanager
from functools import partial

import pytest

from mistify.package.manifest import Manifest
from mistify_client import load
from mistify_client.adapting import loop
from mistify_client.adapting.storage import AdaptationStorage
from mistify_client.monitor.adapting import BackgroundAdaptation
from mistify_client.monitor.config import MonitorConfig
from mistify_client.monitor.daemon import Monitor
from mistify_client.monitor.fleet import device_status
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.monitor.status import lines, upgraded
from mistify_client.runtime.samples import RATE, InputSamples, samples_directory
from mistify_client.runtime.versions import current, install, state_directory
from tests.mistify_client.monitor.adapting import PATIENCE
from tests.mistify_client.pools import list_files
from tests.support.adaptable import digits, dirty, make_package, shuffled

IMAGES, _ = digits()
CONFIG = MonitorConfig.model_validate({"adaptation": {"every": "10ms"}})


@pytest.fixture
def package(tmp_path):
    return make_package(tmp_path / "package")


class App:
    """An app that shows a package images, faster than in real time."""

    def __init__(self, package):
        self._now = 0.0
        self._samples = InputSamples(
            state_directory(package), Manifest.load(package).inputs, lambda: self._now
        )

    def shows(self, images):
        for image in images:
            self._now += 1.01 / RATE
            self._samples.offer({"image": image[None]})


def until(condition):
    """Wait until a condition holds."""
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.002)


@pytest.fixture
def journal(package):
    state = MonitorState.of(package)
    state.directory.mkdir(parents=True)
    return Journal(state.log, None)


@contextmanager
def adapting(package, journal):
    background = BackgroundAdaptation(package, 0.01, journal)
    try:
        yield background
    finally:
        background.stop()


def see(background, app, images):
    """Show images, and wait until the thread has learnt from them."""
    expected = background.state.examples
    for at in range(0, len(images), 32):
        expected += len(images[at : at + 32])
        app.shows(images[at : at + 32])
        until(partial(seen, background, expected))


def seen(background, count):
    return background.state.examples >= count


def test_a_thread_adapts_the_package_and_logs_it(package, journal):
    with adapting(package, journal) as background:
        until(lambda: background.state is not None)
        assert (background.state.adapted, background.state.shift) == (False, 0)
        see(background, App(package), dirty(shuffled(IMAGES, 480)))
        until(lambda: background.state.adapted)
    (entry,) = journal.last
    assert (entry["event"], entry["action"]) == ("adaptation", "installed")
    assert entry["reason"] == "installed, because the data have shifted"
    assert entry["shift"] > 1.5
    assert current(package) != package
    assert not samples_directory(state_directory(package)).exists()
    assert background.state is None


def test_a_thread_goes_on_where_the_last_one_stopped(package, journal):
    with adapting(package, journal) as background:
        until(lambda: background.state is not None)
        see(background, App(package), dirty(shuffled(IMAGES, 160)))
        shift = background.state.shift
    with adapting(package, journal) as background:
        until(lambda: background.state is not None)
        assert background.state.shift == pytest.approx(shift, abs=1e-3)


def test_a_package_that_cannot_be_adapted_is_reported_once_until_it_can(package, journal, tmp_path):
    other, broken = (make_package(tmp_path / name, "adaptable_float16") for name in ("other", "broken"))
    (broken / "adaptation.json").write_bytes(b"damaged")
    list_files(broken)
    with adapting(package, journal) as background:
        until(lambda: background.state is not None)
        install(package, broken)
        until(lambda: journal.problems)
        assert "damaged" in journal.problems["adaptation"]
        assert background.state is None
        install(package, other)
        until(lambda: not journal.problems and background.state is not None)
    assert len(journal.last) == 2


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("Failed to allocate tensors")]
)
def test_a_failure_is_a_problem_and_the_thread_goes_on(package, journal, monkeypatch, error):
    full = [True]
    save = AdaptationStorage.save

    def saved(*arguments):
        if full[0]:
            raise error
        save(*arguments)

    monkeypatch.setattr(AdaptationStorage, "save", saved)
    with adapting(package, journal):
        until(lambda: journal.problems)
        assert str(error) in journal.problems["adaptation"]
        full[0] = False
        until(lambda: not journal.problems)


def test_the_thread_has_the_lowest_priority(package, journal, monkeypatch):
    seen = []
    step = loop.AdaptationLoop.step

    def watched(self):
        seen.append(os.getpriority(os.PRIO_PROCESS, 0))
        step(self)

    monkeypatch.setattr(loop.AdaptationLoop, "step", watched)
    with adapting(package, journal):
        until(lambda: seen)
    assert set(seen) == {19}
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19


def test_a_monitor_shows_and_reports_the_adaptation(package, journal):
    load(package)(IMAGES[:1])
    monitor = Monitor(package, lambda: CONFIG, journal, sensor=SensorReading)
    with closing(monitor):
        background = monitor._adaptation
        until(lambda: background.state is not None)
        monitor.step()
        see(background, App(package), dirty(shuffled(IMAGES, 480)))
        until(lambda: background.state.adapted)
        monitor.step()
        content = json.loads(MonitorState.of(package).status.read_bytes())
        status = device_status("kitchen", monitor._outcome, None, {}, background.state)
    assert content["adaptation"]["adapted"] is True
    shown = list(lines(upgraded({**content, "running": True})))
    assert f"adapted to the data: shift {content['adaptation']['shift']:.2f} after 480 examples" in shown
    made = Manifest.load(current(package)).created
    assert status.adaptation.adapted_unix_ms == round(made.timestamp() * 1000)
    assert status.adaptation.examples == 480
    assert status.adaptation.shift == content["adaptation"]["shift"]
    earlier = {key: value for key, value in content.items() if key != "adaptation"}
    assert not any("adapted" in line for line in lines(upgraded({**earlier, "running": True, "last": []})))


def test_a_config_without_the_table_ends_the_adaptation(package, journal):
    configs = [CONFIG, MonitorConfig()]
    monitor = Monitor(package, lambda: configs.pop(0), journal, sensor=SensorReading)
    with closing(monitor):
        directory = samples_directory(state_directory(package))
        until(directory.exists)
        monitor.reload()
        assert not directory.exists()
        assert monitor._adaptation is None
