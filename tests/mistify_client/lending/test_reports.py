"""The reports of apps on the help that they get, and what a monitor makes of them."""

import json
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import mistify_client
from mistify_client.lending import reports
from mistify_client.lending.chains import Part
from mistify_client.lending.placement import PlacedPart, Placement
from mistify_client.lending.reports import HelpedTimes, LendingReporter, read_reports
from mistify_client.lending.status import NOT_CONNECTED, LendingStatus
from mistify_client.monitor.config import MonitorConfig
from mistify_client.monitor.daemon import Monitor
from mistify_client.monitor.lending import LendingLog
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.monitor.status import lines, upgraded
from mistify_client.runtime.versions import state_directory

HERE = Placement((), 30.0, 30.0)
HELPED = Placement(
    (
        PlacedPart(Part("drone:7470", 0, 2), 50_000, 12.0),
        PlacedPart(Part("car:7470", 2, 3), 4_000, 8.0),
    ),
    20.0,
    30.0,
)
HELPERS = ("drone:7470", "car:7470")
GONE = {"drone:7470": "drone:7470 cannot be reached: refused"}


def times(local_ms: float = 30.0, **helped_ms: float) -> HelpedTimes:
    return HelpedTimes("branch-0", local_ms, helped_ms)


def status(placement: Placement, problems: dict[str, str]) -> LendingStatus:
    return LendingStatus(placement, 21.0, problems, {"local": 3})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_app_reports_changes_after_a_second_and_otherwise_every_five(tmp_path) -> None:
    clock = Clock()
    reporter = LendingReporter(tmp_path, clock)
    shown = []
    for now, placement in [
        (0, HERE),
        (0.5, HELPED),
        (1.1, HELPED),
        (5, HERE),
        (6, HELPED),
        (10.5, HELPED),
        (11.5, HELPED),
    ]:
        clock.now = now
        reporter.offer(LendingStatus(placement, float(now), {}, {}), times)
        (report,) = read_reports(tmp_path)
        shown.append((report.measured_ms, report.helpers))
    assert shown == [
        (0.0, ()),
        (0.0, ()),
        (1.1, HELPERS),
        (5.0, ()),
        (6.0, HELPERS),
        (6.0, HELPERS),
        (11.5, HELPERS),
    ]


@pytest.mark.parametrize(
    "other",
    [
        HelpedTimes("branch-0", 34.0, {"branch-0": 20.0}),
        HelpedTimes("branch-0", 30.0, {"branch-0": 17.0}),
        HelpedTimes("branch-0", 30.0, {}),
        HelpedTimes("engine-1", 30.0, {"branch-0": 20.0}),
    ],
)
def test_other_predicted_times_are_reported_after_a_second(tmp_path, other) -> None:
    clock = Clock()
    reporter = LendingReporter(tmp_path, clock)
    before = HelpedTimes("branch-0", 30.0, {"branch-0": 20.0})
    for predicted in (before, before._replace(local_ms=31.0), other):
        clock.now += 1
        reporter.offer(status(HERE, {}), lambda predicted=predicted: predicted)
        (report,) = read_reports(tmp_path)
        expected = before if predicted.local_ms == 31.0 else predicted
        assert (report.option, report.local_ms, report.helped_ms) == expected


def test_reports_of_apps_that_have_ended_are_removed_and_damaged_ones_ignored(tmp_path, monkeypatch) -> None:
    LendingReporter(tmp_path).offer(status(HERE, {}), times)
    (path,) = (tmp_path / "lending").iterdir()
    path.with_name("1.json").write_text('{"half": ')
    assert len(read_reports(tmp_path)) == 1
    monkeypatch.setattr(reports, "_OLDEST_SECONDS", -1.0)
    assert read_reports(tmp_path) == []
    assert not path.exists()


def test_a_report_from_before_the_clock_was_set_back_is_removed(tmp_path, monkeypatch) -> None:
    now = time.time()
    with monkeypatch.context() as later:
        later.setattr(reports.time, "time", lambda: now + 3600)
        LendingReporter(tmp_path).offer(status(HELPED, {}), times)
    assert read_reports(tmp_path) == []
    assert list((tmp_path / "lending").iterdir()) == []


def test_two_loaded_models_of_an_app_report_side_by_side(tmp_path) -> None:
    for placement in (HERE, HELPED):
        LendingReporter(tmp_path).offer(status(placement, {}), times)
    assert sorted(report.helpers for report in read_reports(tmp_path)) == [(), HELPERS]


def test_an_app_reports_again_when_there_is_room(tmp_path) -> None:
    clock, blocked = Clock(), tmp_path / "lending"
    blocked.write_text("a file in place of the directory")
    reporter = LendingReporter(tmp_path, clock)
    reporter.offer(status(HERE, {}), times)
    blocked.unlink()
    for clock.now in (30.0, 62.0):
        assert read_reports(tmp_path) == []
        reporter.offer(status(HERE, {}), times)
    assert len(read_reports(tmp_path)) == 1


def test_an_app_that_cannot_write_reports_goes_on(tmp_path, caplog) -> None:
    (tmp_path / "lending").write_text("a file in place of the directory")
    reporter = LendingReporter(tmp_path)
    for _ in range(3):
        reporter.offer(status(HERE, {}), times)
    assert caplog.text.count("no monitor can see which helpers are used") == 1


def test_the_monitor_notes_every_change_of_the_helper_and_problems_once(float_package) -> None:
    state = state_directory(float_package)
    state.mkdir(exist_ok=True)
    log = state / "decisions.jsonl"
    journal = Journal(log, None)
    watched = LendingLog(journal)
    clock = Clock()
    reporter = LendingReporter(state, clock)
    steps = [
        (HERE, {"drone:7470": NOT_CONNECTED}),
        (HELPED, {"drone:7470": ""}),
        (HELPED, {"drone:7470": ""}),
    ]
    for placement, problems in [*steps, (HERE, GONE), (HERE, GONE)]:
        clock.now += 10
        reporter.offer(status(placement, problems), times)
        watched.observe(read_reports(state))
    noted = [json.loads(line) for line in log.read_text().splitlines()]
    assert [entry["reason"] for entry in noted if entry["event"] == "lending"] == [HELPED.reason, HERE.reason]
    assert journal.problems == {"lending": GONE["drone:7470"]}


def lending_file(package: Path) -> Path:
    path = package.with_name("monitor.toml")
    path.write_text('[lending]\nhelpers = ["127.0.0.1:1"]\n')
    return path


def test_an_inference_of_an_app_is_reported_to_the_monitor_of_its_package(float_package) -> None:
    model = mistify_client.load(float_package, lending=lending_file(float_package))
    model(np.zeros((1, 8, 8, 3), np.float32))
    (report,) = read_reports(state_directory(float_package))
    assert (report.helpers, report.counts) == ((), {"local": 1})
    assert report.reason.endswith("no helper is faster")


def test_the_status_of_a_monitor_shows_where_inferences_run(float_package) -> None:
    mistify_client.load(float_package)
    state = state_directory(float_package)
    LendingReporter(state).offer(status(HELPED, GONE), times)
    (state / "monitor").mkdir()
    journal = Journal(MonitorState.of(float_package).log, None)
    with closing(Monitor(float_package, MonitorConfig, journal, sensor=SensorReading)) as monitor:
        monitor.step()
    content = json.loads(MonitorState.of(float_package).status.read_bytes())
    shown = list(lines(upgraded({**content, "running": True})))
    assert (
        "inferences: 3 local; drone:7470 runs the network to cut 2 (50 KB), "
        "then car:7470 from cut 2 on (4 KB), 20.0 ms expected; this device alone takes 30.0 ms"
    ) in shown
    assert f"problem with the lending: {GONE['drone:7470']}" in shown
    earlier = {key: value for key, value in content.items() if key != "lending"}
    assert not any("inferences" in line for line in lines(upgraded({**earlier, "running": True, "last": []})))
