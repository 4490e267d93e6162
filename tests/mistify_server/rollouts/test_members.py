"""Which devices belong to a roll-out, and to which stage."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.fleet import DeviceReport
from mistify.rollouts import DeviceRollouts, InstallationPhase, Rollout, RolloutState
from mistify_server.rollouts.members import first_devices, is_addressed, members_of, place, stage_of
from tests.support.fleets import after, device, new_rollout

NOW = datetime(2026, 11, 29, tzinfo=UTC)
NAMES = [f"device-{number:04}" for number in range(2_000)]


def rollout(*stages: float, pattern: str = "*") -> Rollout:
    new = new_rollout(*stages, pattern=pattern)
    return Rollout(
        id="r",
        job_id=new.job_id,
        goal_id=new.goal_id,
        digest="0" * 64,
        package=new.package,
        devices=new.devices,
        stages=new.stages,
        criteria=new.criteria,
        state=RolloutState.RUNNING,
        stage=0,
        since_unix_ms=0,
        reason="",
        created_unix_ms=0,
        started_by="local",
    )


def test_the_place_of_a_device_never_changes() -> None:
    digest = hashlib.sha256(b"20261129-120000-abcd/kitchen-7").hexdigest()
    expected = int(digest[:12], 16) / 16**12
    assert place("20261129-120000-abcd", "kitchen-7") == expected
    assert place("20261129-120000-abce", "kitchen-7") != expected


@given(st.text(), st.text())
def test_every_device_has_a_place_in_the_last_stage(rollout_id: str, name: str) -> None:
    assert 0 <= place(rollout_id, name) < 1


def test_a_stage_has_its_share_of_the_devices_and_contains_the_earlier_ones() -> None:
    staged = rollout(0.01, 0.1, 1.0)
    stages = [stage_of(staged, name, frozenset()) for name in NAMES]
    within = [sum(stage <= number for stage in stages) / len(NAMES) for number in range(3)]
    assert within == pytest.approx([0.01, 0.1, 1.0], abs=0.02)
    coarser = rollout(0.1, 1.0)
    tenth = {name for name in NAMES if stage_of(coarser, name, frozenset()) == 0}
    hundredth = {name for name, stage in zip(NAMES, stages, strict=True) if stage == 0}
    assert 0 < len(hundredth) < len(tenth)
    assert hundredth < tenth


def test_another_roll_out_begins_with_other_devices() -> None:
    first, second = rollout(0.1, 1.0), replace(rollout(0.1, 1.0), id="s")
    tenths = [{name for name in NAMES if stage_of(each, name, frozenset()) == 0} for each in (first, second)]
    assert len(tenths[0] & tenths[1]) < 0.3 * len(tenths[0])


def test_the_first_stage_of_a_small_fleet_has_as_many_devices_as_it_needs() -> None:
    small = rollout(0.001, 1.0)
    names = NAMES[:5]
    reports = [DeviceReport(device(name), NOW) for name in names]
    (first,) = first_devices(small, reports, NOW)
    assert first == min(names, key=lambda name: place("r", name))
    members = members_of(small, reports, frozenset({first}), NOW)
    assert {member.name for member in members if member.stage == 0} == {first}
    assert {member.stage for member in members} == {0, 1}


def test_the_first_stage_does_not_wait_for_a_device_that_is_off() -> None:
    first, second, *_ = sorted(NAMES[:5], key=lambda name: place("r", name))
    seen = {first: NOW - timedelta(hours=2)}
    reports = [DeviceReport(device(name), seen.get(name, NOW)) for name in NAMES[:5]]
    assert first_devices(rollout(0.001, 1.0), reports, NOW) == {second}
    assert first_devices(rollout(0.001, 1.0), reports, NOW + timedelta(hours=2)) == frozenset()


@pytest.mark.parametrize(
    ("pattern", "package", "addressed"),
    [
        ("*", "phone", True),
        ("kitchen-*", "phone", True),
        ("hall-*", "phone", False),
        ("Kitchen-*", "phone", False),
        ("*", "watch", False),
    ],
)
def test_devices_are_addressed_by_package_and_name(pattern: str, package: str, addressed: bool) -> None:
    status = replace(device("kitchen-7"), rollouts=DeviceRollouts(package))
    assert is_addressed(rollout(1.0, pattern=pattern), status) is addressed


def test_only_the_asterisk_stands_for_other_text() -> None:
    names = [device(name) for name in ("hall[2]", "hall2", "hall?", "halls")]
    by_pattern = {
        pattern: [each.name for each in names if is_addressed(rollout(1.0, pattern=pattern), each)]
        for pattern in ("hall[2]", "hall?", "*[2]")
    }
    assert by_pattern == {"hall[2]": ["hall[2]"], "hall?": ["hall?"], "*[2]": ["hall[2]"]}


def test_devices_that_do_not_follow_roll_outs_are_left_alone() -> None:
    assert not is_addressed(rollout(1.0), replace(device("kitchen-7"), rollouts=None))


def test_a_device_counts_once_it_has_measured_the_new_package() -> None:
    installed = after(device("a"), "r", slowdown=1.5)
    idle = after(device("b"), "r", slowdown=None)
    assert installed.rollouts is not None
    unmeasured = replace(installed, name="c", rollouts=replace(installed.rollouts, measured_ms=None))
    earlier = after(device("d"), "earlier")
    failed = after(device("e"), "r", InstallationPhase.FAILED, slowdown=2.0)
    rolled_back = replace(after(device("f"), "r"), goal_id="phone")
    statuses = [installed, idle, unmeasured, earlier, failed, rolled_back]
    reports = [DeviceReport(status, NOW) for status in statuses]
    members = members_of(rollout(1.0), reports, frozenset(), NOW)
    assert [member.settled for member in members] == [True, True, False, False, False, False]
    assert [member.slowdown for member in members] == [1.5, None, None, None, None, None]
    assert [member.failed for member in members] == [False, False, False, False, True, False]
