"""The foreground path on load traces: it matches a reference and does not oscillate."""

import os
from itertools import pairwise

import pytest

from mistify.config.data.metric import Metric
from mistify.errors import MistifyError
from mistify.parsing.validation import Settings
from mistify_client.monitor.foreground import Foreground
from mistify_client.monitor.policies.base import Decision, Policy
from mistify_client.monitor.policies.predictive import PredictiveParams, PredictivePolicy
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.sensing.system import SystemFiles
from mistify_client.monitor.slices import BackgroundSlices
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.targets import Targets
from mistify_client.runtime.statistics import Recorder
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import state_directory
from tests.mistify_client.monitor.conftest import (
    ACCURACIES,
    EXPECTED_MS,
    INTERVAL,
    branch,
    foreground_of,
    manifest,
    three_branches,
)

DWELL = 1.0


def on_board(package) -> Foreground:
    return foreground_of(package, PredictivePolicy(PredictiveParams()), SensorReading, "board")


def reference(device) -> int:
    """Return the most accurate branch within the target by brute force, or the fastest if none fits."""
    taken = [device.latency_ms(branch, device.now) for branch in range(3)]
    within = [branch for branch in range(3) if taken[branch] <= 20.0]
    return max(within, key=lambda branch: ACCURACIES[branch]) if within else taken.index(min(taken))


@pytest.mark.parametrize(
    ("hardware", "threads", "first_ms"),
    [
        ("host", 1, 4.0),
        ("host@4-threads", 4, 4.0),
        ("host", 4, 4.0),
        ("board", 1, 40.0),
        ("board@4-threads", 1, 4.0),
    ],
)
def test_expected_latencies_apply_to_the_threads_of_the_package(package, hardware, threads, first_ms):
    """If a new goal would have other threads than the package, the host's latencies are used."""
    made = three_branches()
    latency = made.latency.model_copy(update={"threads": threads})
    made.model_copy(update={"latency": latency}).save(package)
    foreground = foreground_of(package, PredictivePolicy(PredictiveParams()), SensorReading, hardware)
    assert foreground.step(1000.0, 999.0, Targets()).predicted_ms["branch-0"] == first_ms


@pytest.mark.parametrize("load", [0.3, 0.7, 0.95, 1.0, 1.5, 1.9, 2.3, 4.0, 4.9, 5.4, 30.0])
@pytest.mark.parametrize("pause", [0.0, 0.3])
def test_the_policy_settles_on_the_best_branch(device, load, pause):
    settled = device(load=lambda now: load, noise=0.02, pause=pause)
    outcome = settled.run(20)
    assert settled.branch == reference(settled)
    assert outcome.decision.fits is (settled.latency_ms(settled.branch, settled.now) <= 20)
    assert len(settled.switches) <= 1


@pytest.mark.parametrize("offset", [0.01, 0.12, 0.24])
def test_the_second_decision_after_a_load_step_is_right(device, offset):
    """One interval after the step, all recent measurements come from the new conditions."""
    stepped = device(load=lambda now: 0.5 if now < 1010 + offset else 3.0, noise=0.05)
    stepped.run(10)
    assert stepped.branch == 2
    stepped.run(2 * INTERVAL)
    assert stepped.branch == reference(stepped) == 0
    assert stepped.switches[-1].decision.fits


def test_switching_down_leaves_a_margin(device):
    """Branch 1 would take 19.5 ms, so close to the target of 20 ms that any noise would exceed it."""
    stepped = device(load=lambda now: 0.5 if now < 1010 else 1.95)
    stepped.run(10)
    assert stepped.branch == 2
    stepped.run(2 * INTERVAL)
    assert stepped.branch == 0


def test_the_best_branch_returns_after_the_dwell_time(device):
    stepped = device(load=lambda now: 3.0 if now < 1010 else 0.5, noise=0.05)
    stepped.run(10)
    assert stepped.branch == 0
    stepped.run(DWELL + 2 * INTERVAL)
    assert stepped.branch == reference(stepped) == 2


def test_a_load_ramp_visits_each_branch_once_in_each_direction(device):
    up_and_down = device(load=lambda now: 0.5 + 5 * (1 - abs(now - 1100) / 100), noise=0.03)
    up_and_down.run(200)
    path = [outcome.decision.option for outcome in up_and_down.switches]
    assert path == ["branch-2", "branch-1", "branch-0", "branch-1", "branch-2"]
    for outcome in up_and_down.switches:
        assert outcome.decision.fits


@pytest.mark.parametrize("noise", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("load", [0.8, 2.0])
def test_noise_at_the_limit_does_not_cause_oscillation(device, load, noise):
    """At these loads, a branch takes exactly the target latency for five minutes."""
    noisy = device(load=lambda now: load, noise=noise)
    noisy.run(300)
    assert len(noisy.switches) <= (2 if noise < 0.5 else 6)


def test_a_branch_slower_than_expected_is_not_tried_repeatedly(device):
    """The ratio measured on branch 1 suggests that branch 2 fits, but on this device it never does."""
    deviating = device(load=lambda now: 0.7, deviations=(1.0, 1.0, 1.5), noise=0.02)
    deviating.run(300)
    assert deviating.branch == reference(deviating) == 1
    assert len(deviating.switches) == 2


def test_corrections_do_not_drift_under_alternating_load(device):
    """Most switches down happen in an interval that contains both load levels."""
    alternating = device(load=lambda now: 0.5 if now // 13 % 2 else 3.0, noise=0.05)
    alternating.run(900)
    assert len(alternating.switches) > 60
    alternating.load = lambda now: 8.0
    outcome = alternating.run(5)
    corrections = [
        each.costs.latency_ms / ms for each, ms in zip(outcome.situation.options, EXPECTED_MS, strict=True)
    ]
    assert corrections == pytest.approx([1.0, 1.0, 1.0], abs=0.1)
    assert outcome.situation.ratio == pytest.approx(8.0, rel=0.1)


def test_corrections_find_a_branch_that_is_faster_than_expected(device):
    deviating = device(load=lambda now: 2.5, deviations=(1.0, 0.6, 1.0), noise=0.02)
    deviating.run(2)
    assert deviating.branch in (0, 1)
    deviating.run(60)
    assert deviating.latency_ms(deviating.branch, deviating.now) <= 20


def test_one_slow_inference_changes_nothing(device):
    hiccup = device(load=lambda now: 50.0 if 1010 < now < 1010.1 else 0.9, pause=0.04)
    hiccup.run(20)
    assert hiccup.switches == []


def test_batches_do_not_count_as_single_examples(device):
    batches = device(pause=None)
    batches.run(1)
    for n in range(20):
        batches.recorder.record(batches.now + 0.01 * n, 320.0, 320.0, 0.0, option=1, batch=32)
    assert batches.run(INTERVAL).situation.idle
    assert batches.branch == 1


@pytest.mark.parametrize("pause", [5.0, 140.0])
def test_an_app_with_rare_inferences_is_monitored(device, pause):
    seldom = device(load=lambda now: 4.0, pause=pause)
    seldom.run(6 * pause)
    assert seldom.branch == reference(seldom) == 0
    seldom.load = lambda now: 0.5
    seldom.run(5 * pause)
    assert seldom.branch == reference(seldom) == 2


def test_fewer_than_three_inferences_in_five_minutes_are_ignored(device):
    too_seldom = device(load=lambda now: 4.0, pause=160.0)
    too_seldom.run(2000)
    assert all(outcome.situation.idle for outcome in too_seldom.outcomes)
    assert too_seldom.branch == 1


def test_the_branch_does_not_change_without_inferences(device):
    idle = device(load=lambda now: 4.0)
    idle.run(5)
    assert idle.branch == 0
    idle.pause = None
    outcome = idle.run(60)
    assert outcome.situation.idle
    assert idle.branch == 0
    assert outcome.situation.ratio == pytest.approx(4.0)


def test_without_inferences_a_busy_processor_lowers_the_choice(device):
    free = {"share": 0.9}
    hinted = device(load=lambda now: 0.6, reading=lambda now: SensorReading(cpu_available=free["share"]))
    hinted.run(5)
    assert hinted.branch == 2
    hinted.pause = None
    hinted.run(2)
    assert hinted.branch == 2
    free["share"] = 0.3
    outcome = hinted.run(INTERVAL)
    assert hinted.branch == 1
    assert "predicted" in outcome.decision.reason


@pytest.mark.parametrize("share", [None, 0.0, 0.5])
def test_with_inferences_the_processor_load_is_ignored(device, share):
    """Where latency was measured, the sensor for processor load makes no difference."""
    measuring = device(load=lambda now: 0.6, reading=lambda now: SensorReading(cpu_available=share))
    measuring.run(5)
    assert measuring.branch == 2


def test_decisions_follow_changed_targets(device):
    followed = device(load=lambda now: 1.0)
    followed.run(5)
    assert followed.branch == 1
    followed.targets = Targets(latency="5ms")
    followed.run(INTERVAL)
    assert followed.branch == 0
    followed.targets = Targets()
    followed.run(DWELL + INTERVAL)
    assert followed.branch == 2
    followed.targets = Targets(memory="2MB")
    followed.run(INTERVAL)
    assert followed.branch == 1


def test_no_branch_fits_an_accuracy_target_that_no_fast_branch_reaches(device):
    asked = device(load=lambda now: 1.0, targets=Targets(latency="20ms", accuracy="85%"))
    outcome = asked.run(5)
    assert asked.branch == 1
    assert not outcome.decision.fits
    assert "accuracy 0.8000 below 0.8500" in outcome.decision.reason


def test_the_smallest_mean_squared_error_is_best(package, device):
    three_branches(Metric.MSE).save(package)
    least = device(load=lambda now: 0.1)
    least.run(5)
    assert least.branch == 0


def test_a_package_without_branches_is_monitored_as_well(package, device):
    manifest().save(package)
    single = device(load=lambda now: 1.0)
    single.deviations = (2.5,)
    assert single.run(5).decision.fits
    single.deviations = (25.0,)
    assert not single.run(5).decision.fits
    assert single.branch == 0


def test_a_new_version_starts_with_its_default_branch(package, device):
    versioned = device(load=lambda now: 3.0)
    versioned.run(5)
    assert versioned.branch == 0
    manifest([branch(1.0, 0.6), branch(2.0, 0.65)], default_branch=1).save(package)
    Switchboard.open(state_directory(package)).bump()
    outcome = versioned.run(4 * INTERVAL)
    assert (outcome.situation.option, outcome.decision.option) == ("branch-1", "branch-1")
    assert outcome.situation.idle  # the app still runs the previous version, which no longer counts
    assert list(outcome.predicted_ms.values()) == pytest.approx([3.0, 6.0])  # the load is still the same


def test_a_package_replaced_in_place_is_reloaded(tmp_path, package, device):
    replaced = device(load=lambda now: 3.0)
    replaced.run(5)
    four = [branch(latency, latency / 100) for latency in (1.0, 2.0, 3.0, 4.0)]
    os.replace(manifest(four).save(tmp_path), package / "manifest.json")
    outcome = replaced.run(INTERVAL)
    assert list(outcome.predicted_ms.values()) == pytest.approx([3.0, 6.0, 9.0, 12.0])
    restarted = Recorder.open(state_directory(package), 4, replaced.switchboard.generation, 1)
    for n in range(5):
        restarted.record(replaced.now + 0.01 * n, 8.0, 8.0, 0.0, option=3, batch=1)
    outcome = replaced.run(INTERVAL)  # while an app also runs inferences with the previous package
    assert list(outcome.predicted_ms.values()) == pytest.approx([2.0, 4.0, 6.0, 8.0])


def test_inferences_with_a_package_newer_than_that_of_the_monitor_are_ignored(package, device):
    early = device(pause=None)
    early.run(1)
    four = Recorder.open(state_directory(package), 4, early.switchboard.generation, 1)
    for n in range(5):
        four.record(early.now + 0.01 * n, 8.0, 8.0, 0.0, option=3, batch=1)
    assert early.run(INTERVAL).situation.idle


def test_latencies_can_be_predicted_for_other_hardware(package):
    outcome = on_board(package).step(1000.0, 999.75, Targets(latency="100ms"))
    assert list(outcome.predicted_ms.values()) == [40.0, 100.0, 250.0]
    assert outcome.decision.option == "branch-1"


def test_ratios_for_different_hardware_are_not_mixed(package):
    """Only the second package has latencies for the intended hardware."""
    shipped = manifest([branch(10.0, 0.8).model_copy(update={"achieved": {}})], default_branch=0)
    shipped.save(package)
    watched, state = on_board(package), state_directory(package)
    recorder = Recorder.open(state, 1, Switchboard.open(state).generation, 1)
    for n in range(5):
        recorder.record(1000.0 + n, 80.0, 80.0, 0.0, option=0, batch=1)
    outcome = watched.step(1004.0, 1000.0, Targets())
    assert (outcome.situation.ratio, outcome.predicted_ms) == (
        pytest.approx(8.0),
        pytest.approx({"branch-0": 80.0}),
    )
    three_branches().save(package)
    Switchboard.open(state).bump()
    assert list(watched.step(1005.0, 1004.0, Targets()).predicted_ms.values()) == [40.0, 100.0, 250.0]


def test_ratios_for_different_thread_counts_are_not_mixed(package):
    three_branches().save(package)
    watched = foreground_of(package, PredictivePolicy(PredictiveParams()), SensorReading, "board")
    state = state_directory(package)
    recorder = Recorder.open(state, 3, Switchboard.open(state).generation, 1)
    for n in range(5):
        recorder.record(1000.0 + n, 800.0, 800.0, 0.0, option=1, batch=1)
    assert watched.step(1004.0, 1000.0, Targets()).situation.ratio == pytest.approx(8.0)
    latency = three_branches().latency.model_copy(update={"threads": 2})
    three_branches().model_copy(update={"latency": latency}).save(package)
    Switchboard.open(state).bump()
    outcome = watched.step(1005.0, 1004.0, Targets())
    assert (outcome.threads, outcome.situation.ratio) == (2, 1.0)


def test_switching_up_waits_for_the_dwell_time(device):
    """A load lasts for half the dwell time: the switch down is immediate, the switch back up waits."""
    restless = device(load=lambda now: 3.0 if now % (3 * DWELL) < DWELL / 2 else 0.5, noise=0.1)
    restless.run(60)
    ups = [
        (earlier, later)
        for earlier, later in pairwise(restless.switches)
        if later.decision.option > later.situation.option
    ]
    assert len(ups) > 10
    for earlier, later in ups:
        assert later.situation.now - earlier.situation.now >= DWELL


class Astray(Policy):
    """A policy that chooses an option that does not exist."""

    params_class = Settings

    def __init__(self, params):
        self._params = params

    def decide(self, situation):
        return Decision("branch-9", True, "why")


def test_a_choice_of_an_unknown_option_is_reported_and_changes_nothing(device):
    astray = device(policy=Astray(Settings()))
    with pytest.raises(MistifyError, match=r'the policy chose "branch-9".*branch-0, branch-1 and branch-2'):
        astray.run(1)
    assert astray.branch == 1


def test_policies_receive_the_memory_that_an_option_may_occupy(package, tmp_path):
    """A control group of the app leaves less memory than the device has; the running option counts, too."""
    group = tmp_path / "sys" / "fs" / "cgroup" / "camera"
    process = tmp_path / "proc" / str(os.getpid())
    for directory in (group, process):
        directory.mkdir(parents=True)
    (process / "cgroup").write_text("0::/camera\n")
    (group / "memory.max").write_text("9000000\n")
    (group / "memory.current").write_text("4000000\n")
    foreground = Foreground(
        package,
        PredictivePolicy(PredictiveParams()),
        lambda: SensorReading(memory_available=20_000_000),
        "host",
        BackgroundSlices(package, Journal(tmp_path / "decisions.jsonl", None)),
        files=SystemFiles(tmp_path / "proc", tmp_path / "sys"),
    )
    situation = foreground.step(1000.0, 999.0, Targets()).situation
    assert situation.conditions.memory_bytes == situation.reading.memory_available == 20_000_000
    state = state_directory(package)
    recorder = Recorder.open(state, 3, Switchboard.open(state).generation, 1)
    situation = foreground.step(1001.0, 1000.0, Targets()).situation
    assert situation.reading.memory_available == 5_000_000
    assert situation.conditions.memory_bytes == 5_000_000 + 2_000_000
    del recorder


def test_the_energy_of_the_option_that_ran_is_measured(device):
    """Inferences of 10 ms at 3 W take 30 mJ; other options take as much in proportion to their latencies."""
    metered = device(reading=lambda now: SensorReading(watts=3.0))
    outcome = metered.run(1)
    assert outcome.energy.mj == pytest.approx(30.0)
    energies = outcome.situation.conditions.energies
    assert [energies[f"branch-{number}"].mj for number in range(3)] == pytest.approx([12.0, 30.0, 75.0])
