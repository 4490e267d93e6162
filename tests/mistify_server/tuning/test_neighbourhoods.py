"""A group's neighbourhood while its index is being built."""

import asyncio
import threading
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from benchmarks.tuning import fleet
from mistify.errors import ErrorCode, MistifyError
from mistify.peers.correlation import correlation
from mistify.peers.membership import Publication
from mistify_server.store.tuning import TuningStore
from mistify_server.tuning import index as index_module
from mistify_server.tuning.neighbourhoods import Neighbourhood, Neighbourhoods

NEW = "f" * 32, "e" * 32, "d" * 32


@dataclass
class SlowStore:
    """A store that blocks reads until it is released, then returns its content at the time of the request."""

    store: TuningStore
    asked: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)
    readings: int = 0
    fails: bool = False

    def store_id(self) -> str:
        return self.store.store_id()

    def publications(self, group: str) -> dict[str, Publication]:
        actual = self.store.publications(group)
        self.readings += 1
        self.asked.set()
        assert self.let_go.wait(60)
        if self.fails:
            raise MistifyError(ErrorCode.UNAVAILABLE, "the disk is away")
        return actual


@pytest.fixture
async def devices(coordinator, monkeypatch):
    """Return as many devices as an index built for five can hold."""
    monkeypatch.setattr(index_module, "_SAMPLE", 5)
    return await coordinator.enter(*range(20))


@pytest.fixture
def slow(coordinator):
    return SlowStore(coordinator.store.tuning)


@pytest.fixture
async def neighbourhood(coordinator, devices, slow, storage):
    group = coordinator.store.tuning.group(fleet.GROUP)
    made = Neighbourhood(group, slow, storage, slow.store_id())
    slow.let_go.set()
    await made.nearest(NEW[0], devices[0].hints, 1)
    made._index._chosen_for = 5
    slow.let_go.clear()
    slow.asked.clear()
    yield made
    slow.let_go.set()
    await made.settled()


def hints_of(devices):
    return {device.key.member: device.hints for device in devices}


async def check(neighbourhood, hints):
    """Assert that the neighbourhood finds the same devices as brute force."""
    measure = correlation("spatiotemporal", fleet.SETTINGS).point
    points = {member: measure(of) for member, of in hints.items()}
    for member, point in points.items():
        others = [(np.linalg.norm(other - point), name) for name, other in points.items() if name != member]
        actual = await neighbourhood.nearest(member, hints[member], 5)
        assert [(one.distance, one.member) for one in actual] == [
            (pytest.approx(distance), name) for distance, name in sorted(others)[:5]
        ]


async def test_during_a_rebuild_the_old_index_answers_and_no_change_is_lost(neighbourhood, devices, slow):
    hints = hints_of(devices)
    old, built = neighbourhood._index, neighbourhood._next

    async def place(member, number):
        hints[member] = fleet.device(number).hints
        await neighbourhood.place(member, hints[member])

    await place(NEW[0], 20)
    await asyncio.to_thread(slow.asked.wait, 60)
    await place(NEW[1], 21)
    await place(devices[4].key.member, 22)
    for gone in devices[3].key.member, NEW[0]:
        del hints[gone]
        neighbourhood.forget(gone)
    await place(NEW[2], 23)
    assert neighbourhood._index is old
    await check(neighbourhood, hints)

    slow.let_go.set()
    await neighbourhood.settled()
    assert neighbourhood._index is built
    assert len(built) == len(hints)
    await check(neighbourhood, hints)
    assert list(old._entries.keys()) == list(old._buckets.keys()) == []


async def test_an_index_keeps_answering_if_it_cannot_be_rebuilt(neighbourhood, devices, slow):
    old, built = neighbourhood._index, neighbourhood._next
    slow.fails = True
    slow.let_go.set()
    for index in old, built:
        await neighbourhood.place(NEW[0], fleet.device(20).hints)
        await neighbourhood.settled()
        assert neighbourhood._index is index
        slow.fails = False
    await check(neighbourhood, hints_of(devices))


async def test_a_caller_that_disconnects_during_a_build_does_not_interrupt_it(
    coordinator, devices, slow, storage
):
    group = coordinator.store.tuning.group(fleet.GROUP)
    neighbourhoods = Neighbourhoods(slow, storage)
    neighbourhood = neighbourhoods.of(group)
    hints = hints_of(devices)
    first, second = (
        asyncio.create_task(neighbourhood.place(member, hints[member])) for member in [*hints][:2]
    )
    await asyncio.to_thread(slow.asked.wait, 60)
    gone = devices[2].key.member
    neighbourhoods.forget(group.name, gone)
    first.cancel()
    slow.let_go.set()
    await second
    del hints[gone]
    await check(neighbourhood, hints)
    assert neighbourhoods.of(group) is neighbourhood
    assert slow.readings == 1


async def test_a_neighbourhood_that_could_not_be_built_is_built_at_the_next_request(
    coordinator, devices, slow, storage
):
    group = coordinator.store.tuning.group(fleet.GROUP)
    neighbourhood = Neighbourhoods(slow, storage).of(group)
    slow.fails = True
    slow.let_go.set()
    with pytest.raises(MistifyError, match="the disk is away"):
        await neighbourhood.nearest(NEW[0], devices[0].hints, 1)
    slow.fails = False
    await check(neighbourhood, hints_of(devices))


async def test_the_index_of_a_removed_group_is_cleared(coordinator, devices, storage):
    group = coordinator.store.tuning.group(fleet.GROUP)
    neighbourhoods = Neighbourhoods(coordinator.store.tuning, storage)
    neighbourhood = neighbourhoods.of(group)
    await neighbourhoods.sweep()
    await check(neighbourhood, hints_of(devices))
    coordinator.store.tuning.remove_group(fleet.GROUP)
    await neighbourhoods.sweep()
    index = neighbourhood._index
    assert list(index._entries.keys()) == list(index._buckets.keys()) == []
    assert await neighbourhood.nearest(NEW[0], devices[0].hints, 1) == []


async def test_a_new_group_with_the_same_name_waits_until_the_index_is_unused(
    coordinator, devices, slow, storage
):
    group = coordinator.store.tuning.group(fleet.GROUP)
    neighbourhoods = Neighbourhoods(slow, storage)
    other = replace(group, settings={**fleet.SETTINGS, "location_km": 2.0})
    hints = devices[0].hints
    first, second = (
        asyncio.create_task(neighbourhoods.of(one).nearest(NEW[0], hints, 1)) for one in (group, other)
    )
    await asyncio.to_thread(slow.asked.wait, 60)
    for _ in range(9):
        await asyncio.sleep(0)
    assert slow.readings == 1
    slow.let_go.set()
    assert (await first)[0].member == (await second)[0].member == devices[0].key.member
    assert slow.readings == 2
