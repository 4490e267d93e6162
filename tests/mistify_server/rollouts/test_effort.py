"""How much of the fleet is looked at for lists of roll-outs and reports of devices."""

from dataclasses import replace
from datetime import timedelta

import pytest

from mistify.fleet import DeviceStatus
from mistify.rollouts import Rollout, RolloutState
from mistify_server.rollouts import members
from tests.mistify_server.rollouts.site import Site
from tests.support.fleets import after, device, new_rollout

DEVICES = [device(f"device-{number}") for number in range(40)]


def test_lists_look_at_no_stages_of_roll_outs_that_have_ended(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.report(*DEVICES)
    started = site.service.start(new_rollout(1.0))
    site.report(*(after(each, started.rollout.id) for each in DEVICES[:3]))
    ended = site.service.roll_back(started.rollout.id)
    looked_at = counted_places(monkeypatch)
    assert (site.service.newest(), ended.running) == ([ended], 3)
    site.report(*DEVICES)
    site.now += timedelta(seconds=5)
    assert site.service.newest() == [replace(ended, running=0)]
    assert looked_at == []


def test_lists_look_at_the_devices_of_roll_outs_that_are_done_once_in_a_while(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.report(device("a"), device("b"))
    started = site.service.start(new_rollout(1.0))
    site.report(after(device("a"), started.rollout.id))
    site.tick()
    (done,) = site.service.newest()
    assert (done.rollout.state, done.stages[0].installed) == (RolloutState.DONE, 1)
    site.report(after(device("b"), started.rollout.id))
    looked_at = counted_places(monkeypatch)
    assert site.service.newest() == [done]
    assert looked_at == []
    assert site.get(started).stages[0].installed == 2
    site.now += timedelta(seconds=5)
    assert [each.stages[0].installed for each in site.service.newest()] == [2]
    changed = site.service.roll_back(started.rollout.id)
    assert site.service.newest() == [changed]


def test_reports_look_only_at_roll_outs_of_their_package_that_are_in_force(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        site.service.roll_back(site.service.start(new_rollout()).rollout.id)
    site.service.start(replace(new_rollout(1.0), package="watch"))
    started = site.service.start(new_rollout(1.0))
    looked_at: list[str] = []

    def counting(rollout: Rollout, status: DeviceStatus) -> bool:
        looked_at.append(rollout.id)
        return members.is_addressed(rollout, status)

    monkeypatch.setattr("mistify_server.rollouts.service.is_addressed", counting)
    (told,) = site.report(device("a"))
    assert told.wanted == started.rollout.wanted
    assert looked_at == [started.rollout.id]


def counted_places(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each device whose stage is determined from now on."""
    names: list[str] = []

    def counting(rollout_id: str, device: str) -> float:
        names.append(device)
        return place(rollout_id, device)

    place = members.place
    monkeypatch.setattr(members, "place", counting)
    return names
