"""Traces are replayed as they were recorded; other settings decide as they would have on the device."""

import json
import math
from datetime import UTC, datetime

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.monitor.policies.base import Decision, Policy, make_policy
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.targets import Targets
from mistify_client.monitor.traces.lines import Moment, Options, Run
from mistify_client.monitor.traces.reading import checked, read_trace
from mistify_client.monitor.traces.replay import replayed
from mistify_client.monitor.traces.summary import Comparison
from mistify_client.monitor.traces.writing import TraceWriter
from mistify_client.runtime.versions import install
from tests.mistify_client.monitor.conftest import three_branches
from tests.support.disks import files_limited_to

STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TARGETS = Targets(latency="20ms", memory="4MB")

POLICIES = {
    "predictive": {},
    "contextual": {"name": "contextual", "importance": {"accuracy": 9, "latency": 3, "memory": 1}},
}


def busy(now):
    """Load that rises and falls: the ratio goes from 1 to 4 and back."""
    return 2.5 - 1.5 * math.cos(now / 1.5)


def draining(now):
    return SensorReading(
        cpu_available=0.9, memory_available=10_000_000, battery=max(0.0, 1 - (now - 1000) / 60)
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "day.jsonl"


@pytest.fixture
def record(device, path):
    """Return a function that records a device for some seconds, and returns it."""

    def record(name="predictive", seconds=20, **settings):
        watched = device(
            policy=make_policy(POLICIES[name]),
            load=busy,
            reading=draining,
            targets=TARGETS,
            noise=0.02,
            **settings,
        )
        trace = TraceWriter(path, now=lambda: STARTED)
        for _ in range(4 * seconds):
            trace.write(watched.run(0.25))
        trace.close()
        return watched

    return record


def again(path, name, targets=TARGETS):
    return list(replayed(read_trace(path), lambda: make_policy(POLICIES[name]), targets))


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_settings_decide_as_they_did_on_the_device(record, path, name):
    device = record(name)
    steps = again(path, name)
    assert len(device.switches) >= 3
    assert [(step.situation.now, step.decision) for step in steps] == [
        (outcome.situation.now, outcome.decision) for outcome in device.outcomes
    ]
    assert all(step.situation.option == step.recorded for step in steps)


def test_every_input_of_a_policy_is_replayed(record, path):
    device = record("contextual", seconds=10)
    for step, outcome in zip(again(path, "contextual"), device.outcomes, strict=True):
        assert step.situation == outcome.situation


def test_a_replay_has_the_same_results_each_time(record, path):
    record("predictive", seconds=10)
    assert again(path, "contextual") == again(path, "contextual")


def test_other_settings_decide_under_the_recorded_conditions(record, path):
    device = record("predictive")
    tighter = Targets(latency="12ms")
    steps = again(path, "predictive", tighter)
    assert [step.situation.ratio for step in steps] == [each.situation.ratio for each in device.outcomes]
    assert [step.decision.option for step in steps] != [each.decision.option for each in device.outcomes]
    for step in steps:
        assert step.situation.targets == tighter
        if step.decision.fits:
            chosen = next(each for each in step.situation.options if each.id == step.decision.option)
            assert step.situation.predicted(chosen).ms <= 12


def test_a_version_that_becomes_current_is_replayed(record, device, path, tmp_path):
    before = record("predictive", seconds=5)
    faster = tmp_path / "new"
    faster.mkdir()
    manifest = three_branches()
    branches = tuple(
        one.model_copy(update={"validation_accuracy": one.validation_accuracy + 0.01})
        for one in manifest.branches
    )
    manifest.model_copy(update={"branches": branches}).save(faster)
    install(before.package, faster)
    trace = TraceWriter(path, now=lambda: STARTED)
    for _ in range(20):
        trace.write(before.run(0.25))
    steps = again(path, "predictive")
    assert [step.situation.options[0].score.value for step in (steps[0], steps[-1])] == [0.7, 0.71]
    assert [step.decision for step in steps] == [each.decision for each in before.outcomes]


def test_a_new_run_of_the_monitor_continues_the_file(record, device, path):
    record(seconds=3)
    after_reboot = device(policy=make_policy({}), targets=TARGETS, now=5.0)
    trace = TraceWriter(path, now=lambda: STARTED.replace(hour=8))
    for _ in range(8):
        trace.write(after_reboot.run(0.25))
    steps = again(path, "predictive")
    assert len(steps) == 12 + 8
    assert [step.run.started for step in (steps[0], steps[-1])] == [
        "2026-01-02T03:04:05+00:00",
        "2026-01-02T08:04:05+00:00",
    ]
    assert [step.seconds for step in steps[12:14]] == [0.0, 0.25]
    assert steps[12].situation.since == -math.inf


def test_a_line_that_was_cut_off_is_left_out_and_removed_when_the_trace_continues(record, path):
    record(seconds=3)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert len(again(path, "predictive")) == 11
    TraceWriter(path, now=lambda: STARTED).close()
    assert path.read_bytes() == whole[: whole[:-20].rindex(b"\n") + 1]


def test_a_full_disk_costs_only_the_decisions_meanwhile(device, path):
    watched = device(policy=make_policy({}), targets=TARGETS)
    trace = TraceWriter(path, now=lambda: STARTED)
    trace.write(watched.run(0.25))
    size = path.stat().st_size
    with files_limited_to(size + 30), pytest.raises(OSError, match=r"space|large"):
        trace.write(watched.run(0.25))
    assert path.stat().st_size == size
    trace.write(watched.run(0.25))
    assert [step.seconds for step in again(path, "predictive")] == [0.0, 0.5]


@pytest.mark.parametrize("content", [b"accuracy,latency\n1,2\n", b"{}\n", b'{"format": 2}\n', b"\x00" * 50])
def test_another_file_is_not_overwritten(path, content):
    path.write_bytes(content)
    with pytest.raises(MistifyError, match="a new file, or a trace to continue"):
        TraceWriter(path)
    assert path.read_bytes() == content


def test_a_file_in_a_directory_that_does_not_exist_is_refused(path):
    with pytest.raises(MistifyError, match="No such file or directory"):
        TraceWriter(path.parent / "none" / "day.jsonl")


RUN = {"format": 1, "started": "2026-01-02"}
OPTION = {
    "kind": "branch",
    "id": "branch-0",
    "engine": {},
    "costs": {"latency_ms": 10.0},
    "score": {"value": 0.8},
}
OPTIONS = {"options": [OPTION], "option": "branch-0"}
MOMENT = {"now": 5.0, "ratio": 1.0, "option": "branch-0", "fits": True}


def written(*lines):
    return [(line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines]


def test_a_trace_can_be_written_by_hand():
    kinds = [type(line) for line in checked(written(RUN, OPTIONS, MOMENT, {**MOMENT, "now": 6}), "day")]
    assert kinds == [Run, Options, Moment, Moment]


def test_energies_last_until_they_change():
    measured = [{"branch-0": {"mj": mj, "origin": "measured"}} for mj in (2.0, 3.0)]
    moments = [{"energies": measured[0]}, {}, {"energies": measured[1]}, {}, {"energies": {}}, {}]
    lines = [
        RUN,
        OPTIONS,
        *({**MOMENT, "now": now, **own} for now, own in enumerate(moments)),
        RUN,
        OPTIONS,
        MOMENT,
    ]
    read = [line.conditions.energies for line in checked(written(*lines), "day") if isinstance(line, Moment)]
    assert [each["branch-0"].mj if each else None for each in read] == [2, 2, 3, 3, None, None, None]


@pytest.mark.parametrize(
    ("lines", "place", "message"),
    [
        ([b"now,ratio"], "line 1", "text that is not JSON"),
        ([b"[]"], "line 1", "got list; expected an object"),
        ([{**RUN, "format": 2}], "line 1", "the version 1 of the format"),
        ([OPTIONS], "line 1", "the beginning of a run"),
        ([RUN, MOMENT], "line 2", "the options of the package"),
        ([RUN, {"options": []}], "line 2", "options: .*1 or more items"),
        ([RUN, {"options": [OPTION]}], "line 2", "option: got nothing; expected one of branch-0"),
        (
            [RUN, {**OPTIONS, "option": "slice-1"}],
            "line 2",
            'option: got "slice-1"; expected one of branch-0',
        ),
        (
            [RUN, {"options": [{**OPTION, "costs": {}}], "option": "branch-0"}],
            "line 2",
            "latency_ms: got nothing",
        ),
        ([RUN, OPTIONS, {**MOMENT, "option": "branch-7"}], "line 3", 'option: got "branch-7"'),
        ([RUN, OPTIONS, {**MOMENT, "ratio": "fast"}], "line 3", 'ratio: got "fast"'),
        ([RUN, OPTIONS, {**MOMENT, "ratio": 0}], "line 3", "ratio: got 0; .*greater than 0"),
        (
            [RUN, OPTIONS, b'{"now": NaN, "ratio": 1, "option": "branch-0", "fits": true}'],
            "line 3",
            "now: got NaN",
        ),
        ([RUN, OPTIONS, {**MOMENT, "load": 3}], "line 3", "load: .*one of computing_share"),
        ([RUN, OPTIONS, {**MOMENT, "reading": {"battry": 0.5}}], "line 3", r"reading\.battry"),
        ([RUN, OPTIONS, {**MOMENT, "targets": {"latency": "soon"}}], "line 3", r"targets\.latency"),
        (
            [RUN, OPTIONS, MOMENT, {**MOMENT, "now": 4.5}],
            "line 4",
            "now: got 4.5; expected a later time than 5",
        ),
        ([RUN, OPTIONS], "day", "no decision"),
        ([], "day", "no decision"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_key(lines, place, message):
    with pytest.raises(MistifyError, match=message) as caught:
        list(checked(written(*lines), "day"))
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert place in str(caught.value)


def test_a_trace_that_does_not_exist_is_reported(path):
    with pytest.raises(MistifyError, match="No such file or directory"):
        list(read_trace(path))


class Wrong(Policy):
    """A policy that chooses an option that does not exist."""

    def __init__(self):
        pass

    def decide(self, situation):
        return Decision("branch-9", True, "why")


def test_a_policy_that_chooses_an_unknown_option_is_reported():
    lines = checked(written(RUN, OPTIONS, MOMENT), "day")
    with pytest.raises(MistifyError, match='the policy chose "branch-9" of branch-0'):
        list(replayed(lines, Wrong, Targets()))


def test_figures_are_those_of_the_options_that_ran_in_between():
    """For ten seconds the ratio is 1, then 3: the slow option stays on the device, the replay leaves it."""
    slow = {**OPTION, "id": "branch-1", "costs": {"latency_ms": 15.0}, "score": {"value": 0.9}}
    moments = [
        {**MOMENT, "now": now, "option": "branch-1", "ratio": 1.0 if now <= 10 else 3.0} for now in range(21)
    ]
    lines = checked(written(RUN, {"options": [OPTION, slow], "option": "branch-1"}, *moments), "day")
    comparison = Comparison()
    text = list(comparison.lines(replayed(lines, lambda: make_policy({}), Targets(latency="35ms"))))
    device, replay = comparison.device, comparison.replay
    assert (device.seconds, device.within, device.switches) == (20.0, 10.0, 0)
    # The ratio rises at second 11, where branch-1 still counts for the second before.
    assert (replay.seconds, replay.within, replay.switches) == (20.0, 19.0, 1)
    assert replay.by_option == {"branch-1": 11.0, "branch-0": 9.0}
    assert device.ms == pytest.approx((10 * 15 + 10 * 45) / 20)
    assert replay.score == pytest.approx((11 * 0.9 + 9 * 0.8) / 20)
    assert text[0] == "recorded from 2026-01-02"
    assert text[1].startswith("0:00:00 branch-1: ")
    assert text[2].startswith("0:00:11 branch-0: ")
    assert text[4].split() == ["time", "within", "the", "targets", "50.0%", "95.0%"]
