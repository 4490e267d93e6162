"""Times in which devices could not report do not count as their silence."""

from datetime import timedelta

import pytest

from mistify.errors import MistifyError
from mistify.rollouts import InstallationPhase, RolloutState
from mistify_server.store.sql.fleet import SqlFleetStore
from tests.mistify_server.rollouts.site import Site
from tests.support.faults import raise_no_space
from tests.support.fleets import after, device, new_rollout

DEVICES = [device(f"device-{number}") for number in range(40)]


@pytest.mark.parametrize("over", [False, True])
def test_a_time_in_which_reports_cannot_be_stored_is_no_silence(
    site: Site, monkeypatch: pytest.MonkeyPatch, *, over: bool
) -> None:
    site.report(device("a"), device("b"))
    started = site.service.start(new_rollout(1.0, after_seconds=86_400.0, devices=2))
    begun = after(device("a"), started.rollout.id, InstallationPhase.DOWNLOADING)
    site.report(begun, after(device("b"), started.rollout.id))
    site.fleet.write()
    site.tick(60)
    with monkeypatch.context() as full:
        full.setattr(SqlFleetStore, "put", raise_no_space)
        for _ in range(3):
            site.fleet.report(after(device("b"), started.rollout.id))
            with pytest.raises(MistifyError, match="no space left"):
                site.fleet.write()
            site.tick(3000)
            assert site.get(started).rollout.state is RolloutState.RUNNING
    if over:
        site.report(after(device("b"), started.rollout.id))
        site.fleet.write()
    site.tick()
    assert site.get(started).rollout.state is RolloutState.RUNNING
    site.report(after(device("b"), started.rollout.id))
    site.fleet.write()
    site.tick(3600)
    site.report(after(device("b"), started.rollout.id))
    site.tick()
    assert "a (no report for an hour, the last one: downloading)" in site.get(started).rollout.reason


@pytest.mark.parametrize("down", [2.0, 7_200.0])
def test_devices_do_not_count_as_silent_while_the_server_is_down(site: Site, down: float) -> None:
    site.report(*DEVICES)
    started = site.service.start(new_rollout(0.2, 1.0, devices=3, latency=None))
    first = site.wanting(DEVICES)
    installing = [after(device(name), started.rollout.id, InstallationPhase.INSTALLING) for name in first]
    site.report(*installing)
    site.tick()
    site.now += timedelta(seconds=down)
    site.restart()
    site.tick()
    rollout = site.get(started).rollout
    assert (rollout.state, rollout.stage) == (RolloutState.RUNNING, 0), rollout.reason
    site.report(*(after(device(name), started.rollout.id) for name in first[:2]))
    site.tick()
    assert site.get(started).rollout.stage == 0, "three devices have to report"
    site.tick(3_500)
    assert site.get(started).rollout.state is RolloutState.RUNNING
    site.tick(200)
    assert site.get(started).rollout.state is RolloutState.STOPPED
