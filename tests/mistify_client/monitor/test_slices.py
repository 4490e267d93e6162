"""The monitor of a package that serves a task: slices are offered, cut when they are chosen, and run."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from mistify.fleet import check_status
from mistify.package.factory import SUPERNET
from mistify.package.manifest import NETWORK, Manifest
from mistify_client import load
from mistify_client.assembly.ladder import CUT, SliceLadder
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
from mistify_client.runtime.versions import open_current, state_directory
from mistify_client.slicing.cutting import main as cut
from tests.mistify_client.ladders import (
    LATENCIES,
    OWN_ACCURACY,
    OWN_MS,
    TASK,
    answers,
    make_serving_package,
    rung,
    write_ladder,
)
from tests.mistify_client.monitor.adapting import Entries
from tests.mistify_client.monitor.daemons import Daemon, shown
from tests.support.factories import QUALITY, images, make_package

MS = (OWN_MS, *LATENCIES.values())
SCORES = (OWN_ACCURACY, *map(QUALITY.expected, LATENCIES))
IDS = ("branch-0", *(f"slice-{limit:g}" for limit in LATENCIES))


@pytest.fixture
def package(tmp_path):
    package = make_serving_package(tmp_path / "package")
    write_ladder(package)
    return package


class Watched:
    """A package with a monitor on a simulated clock.

    An app runs the chosen option. Slices are cut and measured as on a device, between two seconds.

    Attributes:
        latencies: milliseconds of each option on the idle device.
    """

    def __init__(self, package: Path, latencies=MS, target="25ms") -> None:
        config = MonitorConfig.model_validate({"targets": {"latency": target}})
        self.state = MonitorState.of(package)
        self.state.directory.mkdir(parents=True)
        self.entries = Entries()
        self.now, self.latencies = 1000.0, latencies
        state = state_directory(package)
        self.switchboard = Switchboard.open(state)
        self.recorder = Recorder.open(state, len(latencies), self.switchboard.generation, 1)
        self.monitor = Monitor(
            package,
            lambda: config,
            Journal(self.state.log, self.entries),
            sensor=SensorReading,
            clock=lambda: self.now,
        )

    @property
    def running(self) -> int:
        return max(self.switchboard.option, 0)

    def step(self, load, seconds):
        """Let seconds pass in which inferences take `load` times as long as on the idle device."""
        for _ in range(seconds):
            for part in range(1, 9):
                takes = self.latencies[self.running] * load
                self.recorder.record(self.now + part / 10, takes, takes, 0.0, option=self.running, batch=1)
            self.now += 1
            self.monitor.step()
            self.monitor._slices.stop()

    @property
    def status(self):
        return json.loads(self.state.status.read_text())

    def noted(self, event):
        """Return the reasons of all entries of a kind."""
        lines = map(json.loads, self.state.log.read_text().splitlines())
        return [entry["reason"] for entry in lines if entry["event"] == event]


@pytest.fixture
def watched(package):
    watched = Watched(package)
    yield watched
    watched.monitor.close()


def files_of(package):
    directory = state_directory(package) / CUT
    return list(directory.iterdir()) if directory.exists() else []


def best_within(load, target_ms=25.0):
    """Return the best option within the target by brute force."""
    within = [number for number, ms in enumerate(MS) if ms * load <= target_ms]
    return max(within, key=lambda number: SCORES[number])


@pytest.mark.parametrize("load", [1.0, 2.0, 4.0, 9.0])
def test_the_best_slice_within_the_target_is_cut_and_runs(package, watched, load):
    watched.step(load, 5)
    assert watched.running == best_within(load)
    assert watched.status["fits"]
    watched.step(1.0, 5)
    assert watched.running == best_within(1.0) == IDS.index("slice-0.5")
    assert len(files_of(package)) <= 2


def test_the_current_option_stays_until_the_chosen_one_has_been_cut(package, watched):
    """The latencies on the ladder count as measured, so that they do not change."""
    before = (state_directory(package) / SliceLadder.FILE).read_bytes()
    watched.step(4.0, 1)
    outcome = watched.monitor._outcome
    assert (outcome.decision.option, watched.running) == ("branch-0", 0)
    assert outcome.decision.reason.endswith("; branch-0 stays until slice-0.25 has been cut")
    assert len(files_of(package)) == 1
    (noted,) = watched.noted("slices")
    assert noted.startswith("slice-0.25 was cut: ")
    watched.step(4.0, 1)
    assert (watched.running, watched.noted("switch")) == (2, [watched.monitor._outcome.decision.reason])
    assert (state_directory(package) / SliceLadder.FILE).read_bytes() == before


def test_a_failure_leaves_what_ran_and_says_why_until_the_package_is_repaired(package, watched):
    content = (package / SUPERNET).read_bytes()
    (package / SUPERNET).write_bytes(content[:-1])
    watched.step(4.0, 2)
    assert watched.running == 0
    problem = watched.entries.until(event="problem", about="slices")["reason"]
    assert problem.startswith("slice-0.25 cannot be cut: ")
    assert str(package / SUPERNET) in problem
    watched.step(4.0, 2)
    assert "slice-0.1 cannot be cut" in watched.status["problems"]["slices"]
    assert not watched.status["fits"]
    assert (watched.running, files_of(package)) == (0, [])
    (package / SUPERNET).write_bytes(content)
    watched.step(4.0, int(RETRY_SECONDS))
    assert watched.running == IDS.index("slice-0.25")
    assert watched.status["problems"] == {}
    assert watched.status["fits"]


def test_another_slice_runs_where_one_cannot_be_cut(package):
    """The best one is of another factory."""
    own, *others = write_ladder(package).rungs
    foreign = [one.model_copy(update={"key": "0" * 32}) if one.limit == 0.25 else one for one in others]
    write_ladder(package, rungs=(own, *foreign))
    watched = Watched(package)
    watched.step(4.0, 4)
    assert watched.running == IDS.index("slice-0.1")
    assert "slice-0.25 is of another network" in "".join(watched.noted("problem"))
    watched.monitor.close()


def test_a_damaged_slice_is_cut_again_before_it_runs(package, watched):
    cut(str(package), "slice-0.25")
    (file,) = files_of(package)
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    watched.step(4.0, 1)
    assert watched.running == 0
    assert file.read_bytes() == content
    watched.step(4.0, 1)
    assert watched.running == IDS.index("slice-0.25")


def test_a_slice_that_is_slower_than_predicted_is_not_switched_to(package):
    """It is predicted to take a thousandth of the time of the own network, and takes nearly as much."""
    predicted = rung(package, 0.5, 0.01).model_copy(update={"measured": False})
    write_ladder(package, rungs=(rung(package, 0.1, 0.5), predicted))
    watched = Watched(package, (OWN_MS, 0.5, 0.01), target="1ms")
    watched.step(1.0, 5)
    assert [reason.partition(" ")[0] for reason in watched.noted("switch")] == ["slice-0.1"]
    cut_first = [reason.partition(" ")[0] for reason in watched.noted("slices")]
    assert cut_first == ["slice-0.5", "slice-0.1"]
    measured = SliceLadder.of(open_current(package), state_directory(package)).rung("slice-0.5")
    assert measured.measured
    assert 1.0 < measured.latency_ms < 10 * OWN_MS
    assert watched.status["options"][2]["expected_ms"] == pytest.approx(measured.latency_ms)
    watched.monitor.close()


def test_slices_are_offered_for_the_task_that_a_package_serves(tmp_path):
    package = make_serving_package(tmp_path / "package")
    watched = Watched(package, (OWN_MS,))
    watched.monitor._slices._seconds = 1e-3
    watched.step(1.0, 1)
    ladder = SliceLadder.of(open_current(package), state_directory(package))
    offered = watched.entries.until(event="slices")
    assert offered["options"] == [one.id for one in ladder.rungs]
    assert offered["reason"].startswith("offers slice-")
    assert offered["reason"].endswith(f" for {TASK}")
    watched.monitor.step()
    assert [each["id"] for each in watched.status["options"]] == ["branch-0", *offered["options"]]
    before = ladder.generation
    for _ in range(3):
        watched.monitor.step()
        watched.monitor._slices.stop()
    assert SliceLadder.of(open_current(package), state_directory(package)).generation == before
    watched.monitor.close()


def test_slices_are_offered_again_on_another_machine(package):
    write_ladder(package, machine="another")
    watched = Watched(package)
    watched.monitor._slices._seconds = 1e-3
    watched.step(1.0, 2)
    ladder = SliceLadder.of(open_current(package), state_directory(package))
    assert ladder.machine != "another"
    assert watched.monitor._outcome.ladder == ladder
    watched.monitor.close()


def without_a_task(package):
    Manifest.load(package).model_copy(update={"task": None}).save(package)


def without_a_factory(package):
    manifest = Manifest.load(package)
    manifest.model_copy(update={"files": {NETWORK: manifest.files[NETWORK]}}).save(package)


def after_tuning(package):
    Manifest.load(package).model_copy(update={"tuned_from": "0" * 64}).save(package)


@pytest.mark.parametrize("change", [without_a_task, without_a_factory, after_tuning])
def test_other_packages_are_monitored_without_slices(package, change):
    change(package)
    watched = Watched(package, (OWN_MS,))
    watched.step(1.0, 3)
    assert [each["id"] for each in watched.status["options"]] == ["branch-0"]
    assert watched.status["problems"] == {}
    assert watched.noted("slices") == []
    watched.monitor.close()


def test_a_package_whose_slices_cannot_be_offered_says_why(package):
    write_ladder(package, package="0" * 64)
    (package / SUPERNET).unlink()
    watched = Watched(package, (OWN_MS,))
    watched.step(1.0, 2)
    assert watched.status["problems"]["slices"].startswith("no slices are offered: ")
    assert SUPERNET in watched.status["problems"]["slices"]
    assert watched.running == 0
    watched.monitor.close()


def test_no_option_meets_a_target_below_the_smallest_slice(watched):
    write_changes(watched.state.targets, {"latency": "1ms"})
    watched.step(1.0, 3)
    assert watched.running == IDS.index("slice-0.1")
    assert not watched.status["fits"]
    assert watched.status["reason"].endswith("no option meets the targets")


def test_memory_and_accuracy_are_targets_of_slices_as_well(watched):
    write_changes(watched.state.targets, {"latency": "none", "accuracy": "88%"})
    watched.step(1.0, 5)
    assert (watched.running, watched.status["fits"]) == (IDS.index("slice-0.5"), True)
    write_changes(watched.state.targets, {"memory": "30KB"})
    watched.step(1.0, 5)
    assert (watched.running, watched.status["fits"]) == (IDS.index("slice-0.25"), True)


def test_status_shows_slices(package, watched):
    watched.step(4.0, 3)
    assert [(each["id"], each["kind"]) for each in watched.status["options"]] == [
        ("branch-0", "branch"),
        *((each, "slice") for each in IDS[1:]),
    ]
    ladder = watched.status["ladder"]
    assert (ladder["task"], ladder["own_ms"]) == (TASK, OWN_MS)
    text = shown("status", "--package", package).stdout
    assert "slices for exactly:2, odd: 3 offered" in text.splitlines()
    assert "* slice-0.25: 16ms now, 4ms expected, balanced_accuracy 0.7833, " in text
    assert "  branch-0: 40ms now, 10ms expected, balanced_accuracy 0.85, " in text


def test_status_shows_the_slice_that_is_being_cut(package, watched):
    watched.step(1.0, 1)
    content = {**watched.status, "cutting": "slice-0.1"}
    watched.state.status.write_text(json.dumps(content))
    lines = shown("status", "--package", package).stdout.splitlines()
    assert "slices for exactly:2, odd: 3 offered; slice-0.1 is being cut" in lines


def test_a_status_from_before_slices_is_shown(package, watched):
    watched.step(1.0, 1)
    content = {key: value for key, value in watched.status.items() if key not in ("ladder", "cutting")}
    watched.state.status.write_text(json.dumps(content))
    result = shown("status", "--package", package)
    assert result.exit_code == 0
    assert "slices" not in result.stdout


def test_slices_are_reported_to_the_server(watched):
    watched.step(4.0, 3)
    status = device_status("kitchen-7", watched.monitor._outcome, None, {})
    check_status(status)
    assert (status.option, status.options, status.pool) == ("slice-0.25", 4, None)
    assert (status.latency_ms, status.expected_ms) == (pytest.approx(16.0), pytest.approx(4.0))


def test_a_new_package_is_compared_with_the_fastest_slice(package, tmp_path, turns):
    candidate = make_package(tmp_path / "candidate")
    assert try_candidate(candidate, package, clock=turns).running_ms == pytest.approx(3)
    (package / SUPERNET).unlink()
    manifest = Manifest.load(package)
    files = {name: file for name, file in manifest.files.items() if name != SUPERNET}
    manifest.model_copy(update={"files": files}).save(package)
    write_ladder(package)
    with pytest.raises(Exception, match=SUPERNET):
        try_candidate(candidate, package, clock=turns)


def test_a_daemon_offers_slices_and_switches_an_app_without_dropping_inferences(tmp_path):
    """The best slice is better than the own network, whatever was measured."""
    package = make_serving_package(tmp_path / "package")
    config = tmp_path / "monitor.toml"
    config.write_text('interval = "10ms"\n[targets]\nlatency = "60min"\n[policy]\ndwell = "20ms"\n')
    model, ending, seen, pictures = load(package, task=TASK), threading.Event(), [], images(1)
    right = {model(pictures).tobytes(), answers(package, 0.5, pictures).tobytes()}

    def infer():
        while not ending.is_set():
            seen.append(model(pictures).tobytes())

    thread = threading.Thread(target=infer)
    thread.start()
    daemon = Daemon(package, config)
    try:
        assert "slice-0.5" in daemon.until(event="slices")["options"]
        assert daemon.until(event="slices")["reason"].startswith("slice-0.5 was cut: ")
        assert daemon.until(event="switch")["option"] == "slice-0.5"
        while model.running != "slice-0.5":
            assert thread.is_alive()
        np.testing.assert_array_equal(model(pictures), answers(package, 0.5, pictures))
        assert shown("status", "--package", package).exit_code == 0
    finally:
        ending.set()
        thread.join()
        daemon.end()
    assert set(seen) <= right
    assert len(right) == 2
