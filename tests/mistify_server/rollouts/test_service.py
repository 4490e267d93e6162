"""Roll-outs of a store, with the reports of devices that tests make up."""

import re
from dataclasses import replace
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.rollouts import InstallationPhase, Instruction, RolloutState
from tests.mistify_server.rollouts.site import DIGEST, Site
from tests.support.faults import raise_no_space
from tests.support.fleets import JOB, after, device, new_rollout

DEVICES = [device(f"device-{number}") for number in range(40)]


def test_stages_pass_one_after_the_other(site: Site) -> None:
    site.report(*DEVICES)
    started = site.service.start(new_rollout(0.1, 0.5, 1.0, after_seconds=60.0, devices=2))
    rollout = started.rollout
    assert (rollout.state, rollout.stage, rollout.digest) == (RolloutState.RUNNING, 0, DIGEST)
    first = site.wanting(DEVICES)
    assert 2 <= len(first) < 15
    instruction = site.service.instruction(next(each for each in DEVICES if each.name in first)).wanted
    assert instruction is not None
    assert (instruction.rollout, instruction.job_id, instruction.goal_id, instruction.digest) == (
        rollout.id,
        JOB,
        "phone-2",
        DIGEST,
    )
    site.tick(100)
    assert site.get(started).rollout.stage == 0, "no device has reported"
    installed = {name: after(device(name), rollout.id, slowdown=1.1) for name in first}
    one, *others = installed.values()
    site.report(one)
    site.tick()
    assert site.get(started).rollout.stage == 0, "two devices have to report"
    site.report(*others)
    site.tick()
    progress = site.get(started)
    assert progress.rollout.stage == 1
    assert f"the stage of 10% has passed: {len(first)} devices reported" in progress.rollout.reason
    assert "errors 0%, latency 1.1x" in progress.rollout.reason
    second = site.wanting([installed.get(each.name, each) for each in DEVICES])
    assert set(first) < set(second) < {each.name for each in DEVICES}
    site.report(*(after(device(name), rollout.id, slowdown=1.1) for name in second))
    site.tick(59)
    assert site.get(started).rollout.stage == 1, "the minimum time has not passed"
    site.tick(1)
    assert site.get(started).rollout.stage == 2
    everyone = [after(each, rollout.id, slowdown=1.1) for each in DEVICES]
    assert len(site.wanting(everyone)) == len(DEVICES)
    site.tick(60)
    progress = site.get(started)
    assert progress.rollout.state is RolloutState.DONE
    assert sum(stage.installed for stage in progress.stages) == len(DEVICES)
    assert [stage.share for stage in progress.stages] == [0.1, 0.5, 1.0]


def test_each_new_stage_needs_reports_of_its_own_devices(site: Site) -> None:
    site.report(*DEVICES)
    started = site.service.start(new_rollout(0.2, 1.0))
    first = site.wanting(DEVICES)
    site.report(*(after(device(name), started.rollout.id) for name in first))
    site.tick()
    assert site.get(started).rollout.stage == 1
    site.tick(1000)
    assert site.get(started).rollout.state is RolloutState.RUNNING
    site.report(after(next(each for each in DEVICES if each.name not in first), started.rollout.id))
    site.tick()
    assert site.get(started).rollout.state is RolloutState.DONE


def test_a_stage_does_not_wait_for_devices_that_are_off(site: Site) -> None:
    site.report(*DEVICES)
    started = site.service.start(new_rollout(0.2, 1.0, after_seconds=60.0))
    first = site.wanting(DEVICES)
    site.report(*(after(device(name), started.rollout.id) for name in first))
    site.tick(60)
    assert site.get(started).rollout.stage == 1
    site.tick(3500)
    assert site.get(started).rollout.state is RolloutState.RUNNING
    site.tick(100)
    assert site.get(started).rollout.state is RolloutState.DONE


def test_devices_that_begin_and_fall_silent_count_as_failed(site: Site) -> None:
    site.report(device("a"), device("b"))
    started = site.service.start(new_rollout(1.0, after_seconds=86_400.0, devices=2))
    site.report(after(device("a"), started.rollout.id, InstallationPhase.DOWNLOADING))
    site.report(after(device("b"), started.rollout.id, InstallationPhase.INSTALLED))
    site.tick(3600)
    assert site.get(started).stages[0].installing == 1
    site.report(after(device("b"), started.rollout.id, InstallationPhase.INSTALLED))
    site.tick()
    progress = site.get(started)
    assert progress.rollout.state is RolloutState.STOPPED
    assert "a (no report for an hour, the last one: downloading)" in progress.rollout.reason
    assert [(stage.installed, stage.failed) for stage in progress.stages] == [(1, 1)]


def test_a_roll_out_without_devices_waits_for_one(site: Site) -> None:
    started = site.service.start(new_rollout(1e-9, 1.0))
    site.tick(1000)
    assert site.get(started).rollout.stage == 0
    site.tick()
    (instruction,) = site.report(device("late"))
    assert instruction.wanted is None, "the share of a stage is looked at every second"
    site.tick()
    (instruction,) = site.report(device("late"))
    assert instruction.wanted is not None


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (
            {"phase": InstallationPhase.FAILED, "reason": "it is damaged"},
            r"2 of 2 devices failed, 100% with a limit of 5%: a \(it is damaged\) and b \(it is damaged\)",
        ),
        (
            {"slowdown": 1.5},
            r"the latency is 1\.5 times that before, with a limit of 1\.2: b \(1\.5x\) and a",
        ),
        ({"agreement": 0.4}, r"agree on 40% of the examples, with a limit of 70%: a \(40%\) and b \(40%\)"),
    ],
    ids=["errors", "latency", "agreement"],
)
def test_a_roll_out_stops_beyond_a_limit_and_its_devices_return(
    site: Site, outcome: dict[str, Any], reason: str
) -> None:
    names = ("a", "b")
    site.report(*map(device, names))
    started = site.service.start(new_rollout(1.0, after_seconds=3600.0, devices=2))
    bad = [after(device(name), started.rollout.id, **outcome) for name in names]
    site.report(bad[0])
    site.tick()
    assert site.get(started).rollout.state is RolloutState.RUNNING, "one device is not enough"
    site.report(bad[1])
    site.tick()
    progress = site.get(started)
    assert progress.rollout.state is RolloutState.STOPPED
    assert re.search(reason, progress.rollout.reason), progress.rollout.reason
    failed = outcome.get("phase") is InstallationPhase.FAILED
    expected = Instruction() if failed else Instruction(withdrawn=started.rollout.id)
    assert site.report(*bad) == [expected, expected]
    assert site.report(device("c")) == [Instruction()], "no further device gets it"
    assert (progress.stages, progress.running) == (site.get(started).stages, 0 if failed else 2)
    assert [stage.failed + stage.installed for stage in progress.stages] == [2]
    returned = [after(device(name), started.rollout.id, InstallationPhase.ROLLED_BACK) for name in names]
    assert site.report(*returned) == [Instruction(), Instruction()]
    ended = site.get(started)
    assert (ended.stages, ended.figures, ended.running) == (progress.stages, progress.figures, 0)
    site.restart()
    assert site.get(started) == ended


def test_figures_at_their_limits_pass(site: Site) -> None:
    site.report(*map(device, "abcd"))
    limits = {"errors": 0.25, "latency": 1.5, "agreement": 0.5}
    started = site.service.start(new_rollout(1.0, devices=4, **limits))
    site.report(after(device("a"), started.rollout.id, InstallationPhase.FAILED))
    site.report(*(after(device(n), started.rollout.id, slowdown=1.5, agreement=0.5) for n in "bcd"))
    site.tick()
    progress = site.get(started)
    assert (progress.figures.errors, progress.figures.latency, progress.figures.agreement) == (0.25, 1.5, 0.5)
    assert progress.rollout.state is RolloutState.DONE


def test_figures_without_limits_do_not_stop(site: Site) -> None:
    site.report(device("a"))
    started = site.service.start(new_rollout(1.0, latency=None, agreement=None))
    site.report(after(device("a"), started.rollout.id, slowdown=9.0, agreement=0.0))
    site.tick()
    assert site.get(started).rollout.state is RolloutState.DONE


def test_a_device_that_was_offline_catches_up(site: Site) -> None:
    site.report(device("a"))
    started = site.service.start(new_rollout(1.0))
    site.report(after(device("a"), started.rollout.id))
    site.tick()
    assert site.get(started).rollout.state is RolloutState.DONE
    site.tick(86_400)
    (instruction,) = site.report(device("late"))
    assert instruction.wanted == started.rollout.wanted


def test_a_roll_out_survives_a_restart(site: Site) -> None:
    site.report(*DEVICES)
    started = site.service.start(new_rollout(0.1, 1.0, after_seconds=100.0, devices=3))
    first = site.wanting(DEVICES)
    site.report(*(after(device(name), started.rollout.id) for name in first))
    site.tick(50)
    before = site.get(started)
    site.restart()
    assert site.get(started) == before
    installed = [after(each, started.rollout.id) if each.name in first else each for each in DEVICES]
    assert site.wanting(installed) == first, "the same devices"
    site.tick(50)
    assert site.get(started).rollout.stage == 1
    site.restart()
    assert site.get(started).rollout.stage == 1


def test_a_pause_admits_no_further_devices_and_starts_the_stage_again(site: Site) -> None:
    site.report(*DEVICES)
    started = site.service.start(new_rollout(0.5, 1.0, after_seconds=60.0))
    first = site.wanting(DEVICES)
    begun = after(device(first[0]), started.rollout.id)
    site.report(begun)
    site.tick(59)
    assert site.service.pause(started.rollout.id).rollout.reason == "paused by local"
    assert site.wanting([begun, *(each for each in DEVICES if each.name != begun.name)]) == [begun.name]
    site.tick(1000)
    assert site.get(started).rollout.stage == 0
    site.service.resume(started.rollout.id)
    assert len(site.wanting(DEVICES)) == len(first)
    site.report(begun)
    site.tick(59)
    assert site.get(started).rollout.stage == 0
    site.tick(1)
    assert site.get(started).rollout.stage == 1


def test_limits_apply_during_a_pause(site: Site) -> None:
    site.report(device("a"))
    started = site.service.start(new_rollout(1.0, after_seconds=60.0))
    site.service.pause(started.rollout.id)
    site.report(after(device("a"), started.rollout.id, slowdown=3.0))
    site.tick()
    assert site.get(started).rollout.state is RolloutState.STOPPED


def test_a_package_has_one_roll_out_at_a_time(site: Site) -> None:
    started = site.service.start(new_rollout())
    for _ in range(2):
        with pytest.raises(MistifyError, match=f"the roll-out {started.rollout.id} of the package") as caught:
            site.service.start(replace(new_rollout(), goal_id="phone-3"))
        assert caught.value.code is ErrorCode.CONFLICT
        site.service.pause(started.rollout.id)
    site.service.start(replace(new_rollout(), package="watch"))
    site.service.roll_back(started.rollout.id)
    site.service.start(replace(new_rollout(), goal_id="phone-3"))
    assert len(site.service.newest()) == 3


def test_devices_return_to_the_package_of_an_earlier_roll_out(site: Site) -> None:
    site.report(device("a"))
    first = site.service.start(new_rollout(1.0))
    on_first = after(device("a"), first.rollout.id)
    site.report(on_first)
    site.tick()
    second = site.service.start(replace(new_rollout(1.0), goal_id="phone-3"))
    (instruction,) = site.report(on_first)
    assert instruction.wanted == second.rollout.wanted
    with pytest.raises(
        MistifyError, match=f"roll that one back first: mistify rollout back {second.rollout.id}"
    ):
        site.service.roll_back(first.rollout.id)
    on_second = after(device("a"), second.rollout.id)
    site.report(on_second)
    site.service.roll_back(second.rollout.id)
    assert site.report(on_second) == [Instruction(withdrawn=second.rollout.id)]
    (instruction,) = site.report(after(device("a"), second.rollout.id, InstallationPhase.ROLLED_BACK))
    assert instruction.wanted == first.rollout.wanted
    site.service.roll_back(first.rollout.id)
    assert site.report(on_first) == [Instruction(withdrawn=first.rollout.id)]


def test_what_has_ended_does_not_change(site: Site) -> None:
    started = site.service.start(new_rollout())
    site.service.roll_back(started.rollout.id)
    ended = site.service.roll_back(started.rollout.id)  # as after a lost answer
    for change in (site.service.pause, site.service.resume, site.service.roll_back):
        if change != site.service.roll_back:
            with pytest.raises(MistifyError, match="is rolled back") as caught:
                change(started.rollout.id)
            assert caught.value.code is ErrorCode.CONFLICT
        assert site.get(started) == ended
        with pytest.raises(MistifyError, match='there is no roll-out "none"') as caught:
            change("none")
        assert caught.value.code is ErrorCode.NOT_FOUND


def test_only_packages_are_rolled_out(site: Site) -> None:
    for changes in ({"job_id": "gone"}, {"goal_id": "gone"}, {"goal_id": "none"}):
        with pytest.raises(MistifyError) as caught:
            site.service.start(replace(new_rollout(), **changes))
        assert caught.value.code is ErrorCode.NOT_FOUND


def test_packages_of_a_removed_job_are_not_rolled_out(site: Site) -> None:
    """The job would be removed for good as soon as the roll-out is done, before late devices have it."""
    site.store.jobs.hide(JOB, 1)
    with pytest.raises(MistifyError, match="is removed; restore it") as caught:
        site.service.start(new_rollout())
    assert caught.value.code is ErrorCode.CONFLICT
    site.store.jobs.restore(JOB)
    started = site.service.start(new_rollout())
    site.service.roll_back(started.rollout.id)
    site.store.jobs.hide(JOB, 1)
    assert site.service.roll_back(started.rollout.id).rollout.state is RolloutState.ROLLED_BACK


def test_a_package_is_not_rolled_out_if_its_job_is_removed_meanwhile(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest_of = site.service._digest

    def then_removed(job_id: str, goal_id: str) -> str:
        digest = digest_of(job_id, goal_id)
        site.store.jobs.remove(job_id)
        return digest

    monkeypatch.setattr(site.service, "_digest", then_removed)
    with pytest.raises(MistifyError) as caught:
        site.service.start(new_rollout())
    assert (caught.value.code, site.service.newest()) == (ErrorCode.NOT_FOUND, [])


def test_a_job_stays_while_its_package_is_rolled_out(site: Site) -> None:
    started = site.service.start(new_rollout())
    for remove in (lambda: site.store.jobs.remove(JOB), lambda: site.store.jobs.hide(JOB, 1)):
        with pytest.raises(MistifyError, match=f"the roll-out {started.rollout.id} installs a package"):
            remove()
    site.service.roll_back(started.rollout.id)
    site.store.jobs.remove(JOB)
    assert site.get(started).rollout.state is RolloutState.ROLLED_BACK


def test_a_full_disk_changes_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.report(device("a"))
    started = site.service.start(new_rollout(1.0))
    site.report(after(device("a"), started.rollout.id))

    with monkeypatch.context() as patched:
        patched.setattr(site.store.rollouts, "put", raise_no_space)
        with pytest.raises(MistifyError, match="no space left"):
            site.tick()
        assert site.get(started).rollout.state is RolloutState.RUNNING
    site.tick()
    assert site.get(started).rollout.state is RolloutState.DONE
