"""Roll-outs that a newer version of the server has written."""

import sqlite3
from contextlib import closing

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.rollouts import Instruction, RolloutState
from tests.mistify_server.rollouts.site import Site
from tests.support.fleets import after, device, new_rollout

DEVICES = [device(f"device-{number}") for number in range(4)]


@pytest.mark.parametrize("change", ["'$.state', 'adrift'", "'$.criteria.errors', 'few'"])
def test_with_a_rollout_of_a_newer_version_devices_keep_their_packages(site: Site, change: str) -> None:
    """The earlier roll-out, which is in force, must not bring its package back."""
    site.report(*DEVICES)
    for _ in range(2):
        rollout = site.service.start(new_rollout(1.0)).rollout
        site.report(*(after(each, rollout.id) for each in DEVICES))
        site.tick()
        assert site.service.get(rollout.id).rollout.state is RolloutState.DONE
    with closing(sqlite3.connect(site.directory / "mistify.db")) as connection, connection:
        connection.execute(
            f"UPDATE rollouts SET rollout = json_set(rollout, {change}) WHERE id = ?",  # noqa: S608
            (rollout.id,),
        )
    site.restart()
    site.tick()
    assert site.report(after(DEVICES[0], rollout.id), DEVICES[1]) == [Instruction(), Instruction()]
    for call in (
        site.service.newest,
        lambda: site.service.start(new_rollout(1.0)),
        lambda: site.service.get(rollout.id),
        lambda: site.service.pause(rollout.id),
        lambda: site.service.roll_back(rollout.id),
    ):
        with pytest.raises(MistifyError, match=f"the roll-out {rollout.id} was .*; upgrade") as raised:
            call()
        assert raised.value.code is ErrorCode.STORE_VERSION
