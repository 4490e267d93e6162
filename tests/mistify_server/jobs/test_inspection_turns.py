"""Inspections of tenants and callers take turns."""

import asyncio
from functools import partial

import pytest

from mistify_server.identity.callers import Caller, Scope
from mistify_server.jobs.inspection_turns import InspectionTurns
from tests.support.callers import called_by

CALLERS = {
    name: Caller(name, frozenset({Scope.SUBMIT}), tenant) for name, tenant in zip("abc", "xxy", strict=True)
}


async def settled() -> None:
    """Return once the event loop has nothing left to do: nothing here waits for anything but a turn."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def turns() -> InspectionTurns:
    return InspectionTurns(2)


class Inspections:
    """Inspections that end when they are told to, in the order in which they have begun."""

    def __init__(self, turns: InspectionTurns) -> None:
        self.begun: list[str] = []
        self._turns = turns
        self._ends: list[asyncio.Event] = []

    def request(self, caller: str) -> "asyncio.Task[str]":
        with called_by(CALLERS[caller]):
            return asyncio.create_task(self._turns.take(partial(self._inspect, caller)))

    async def end_next(self) -> None:
        self._ends.pop(0).set()
        await settled()

    async def _inspect(self, caller: str) -> str:
        self.begun.append(caller)
        ended = asyncio.Event()
        self._ends.append(ended)
        await ended.wait()
        return caller


async def test_many_inspections_of_a_tenant_do_not_keep_others_waiting(turns: InspectionTurns) -> None:
    inspections = Inspections(turns)
    requested = [inspections.request("a") for _ in range(6)]
    await settled()
    requested += map(inspections.request, "bc")
    await settled()
    assert (inspections.begun, turns.waiting) == (["a", "a"], 6)
    for _ in range(8):
        await inspections.end_next()
    assert (inspections.begun, turns.waiting) == (list("aacbaaaa"), 0)
    assert await asyncio.gather(*requested) == list("aaaaaabc")


async def test_inspections_that_fail_or_are_abandoned_end_their_turns(turns: InspectionTurns) -> None:
    inspections = Inspections(turns)

    async def failing() -> str:
        raise ValueError("broken")

    with called_by(CALLERS["a"]), pytest.raises(ValueError, match="broken"):
        await turns.take(failing)
    abandoned = [inspections.request("a") for _ in range(3)]
    await settled()
    for each in abandoned:
        each.cancel()
    await asyncio.wait(abandoned)
    assert turns.waiting == 0
    requested = inspections.request("b")
    await settled()
    assert inspections.begun == ["a", "a", "b"]
    inspections._ends[-1].set()
    assert await requested == "b"
