"""Roll-outs of two servers that share a store."""

from collections.abc import Sequence
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.rollouts import Instruction, Rollout, RolloutState
from mistify_server.fleet import Fleet
from mistify_server.rollouts import service as service_module
from mistify_server.rollouts.members import Member
from mistify_server.rollouts.service import RolloutService
from tests.mistify_server.rollouts.site import Site
from tests.support.fleets import after, device, new_rollout

DEVICES = [device(f"device-{number}") for number in range(4)]


@pytest.fixture
def other(site: Site) -> RolloutService:
    """Return the roll-outs of another server with the same store."""
    fleet = Fleet(site.store.fleet, lambda: site.now)
    return RolloutService(site.store.rollouts, site.store.jobs, fleet, lambda: site.now)


def test_servers_see_the_changes_of_each_other(site: Site, other: RolloutService) -> None:
    site.report(*DEVICES)
    started = site.service.start(new_rollout(1.0))
    rollout_id = started.rollout.id
    with pytest.raises(MistifyError, match=rollout_id) as raised:
        other.start(new_rollout(1.0))
    assert raised.value.code is ErrorCode.CONFLICT
    assert [each.rollout for each in other.newest()] == [started.rollout]
    assert other.instruction(DEVICES[0]).wanted == started.rollout.wanted
    assert other.pause(rollout_id).rollout == site.get(started).rollout
    assert site.service.resume(rollout_id).rollout.state is RolloutState.RUNNING
    other.roll_back(rollout_id)
    site.service.refresh()
    assert site.service.instruction(DEVICES[0]) == Instruction()
    assert site.service.instruction(after(DEVICES[0], rollout_id)) == Instruction(withdrawn=rollout_id)
    second = other.start(new_rollout(1.0)).rollout
    assert [each.rollout.id for each in site.service.newest()] == [second.id, rollout_id]


def test_a_stage_that_was_judged_while_another_server_ended_the_roll_out_does_not_start(
    site: Site, other: RolloutService, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.report(*DEVICES)
    started = site.service.start(new_rollout(0.5, 1.0))
    site.report(*(after(each, started.rollout.id) for each in DEVICES))

    def judged(rollout: Rollout, members: Sequence[Member], now_ms: int) -> Rollout:
        with monkeypatch.context() as other_server:
            other_server.setattr(service_module, "judged", original)
            other.roll_back(rollout.id)
        return original(rollout, members, now_ms)

    original = service_module.judged
    monkeypatch.setattr(service_module, "judged", judged)
    site.service.advance()
    assert site.get(started).rollout.state is RolloutState.ROLLED_BACK
    (instruction,) = site.report(after(DEVICES[0], started.rollout.id))
    assert instruction == Instruction(withdrawn=started.rollout.id)


def test_a_roll_out_is_not_started_beside_one_that_another_server_starts(
    site: Site, other: RolloutService, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.report(*DEVICES)

    def new_id(now: Any) -> str:
        with monkeypatch.context() as other_server:
            other_server.setattr(service_module, "new_id", original)
            other.start(new_rollout(1.0))
        return original(now)

    original = service_module.new_id
    monkeypatch.setattr(service_module, "new_id", new_id)
    with pytest.raises(MistifyError, match="is running; wait until it is done"):
        site.service.start(new_rollout(1.0))
    assert len(site.store.rollouts.all()) == 1
