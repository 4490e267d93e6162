import asyncio
from functools import partial

import pytest

from mistify_server.adaptor.agenda import Agenda


async def test_low_ranks_go_first_and_steps_add_steps() -> None:
    agenda, seen = Agenda(), []

    async def step(name: str) -> None:
        seen.append(name)
        if name == "second":
            agenda.add((0,), partial(step, "added"))

    for rank, name in ((3, "third"), (1, "first"), (2, "second")):
        agenda.add((rank,), partial(step, name))
    await agenda.run(1)
    assert seen == ["first", "second", "added", "third"]


async def test_so_many_steps_are_taken_at_once() -> None:
    agenda, meeting = Agenda(), asyncio.Barrier(3)

    async def meet() -> None:
        await meeting.wait()

    for _ in range(3):
        agenda.add((0,), meet)
    await asyncio.wait_for(agenda.run(3), 10)


async def test_an_exception_ends_the_run() -> None:
    agenda, cancelled = Agenda(), asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def fail() -> None:
        raise LookupError("gone")

    agenda.add((0,), wait)
    agenda.add((1,), fail)
    with pytest.raises(LookupError, match="gone"):
        await agenda.run(2)
    assert cancelled.is_set()


async def test_an_empty_agenda_is_done() -> None:
    await Agenda().run(2)
