"""Correlated members of groups: one index per group, built from the store."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from mistify.errors import MistifyError
from mistify.peers.correlation import correlation
from mistify.peers.hints import Hints
from mistify_server.store.tuning import Group, TuningStore
from mistify_server.tuning.hashing import Floats
from mistify_server.tuning.index import Neighbour, PeerIndex
from mistify_server.tuning.storage import IndexStorage

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


class Neighbourhood:
    """The published models of a group, indexed by their devices' hints.

    The store is authoritative: the index is built from it at the first use, and again whenever it is
    incomplete, for example after a restart of Redis. It is used on other threads, in the order of the calls.
    An outgrown index answers queries until its replacement is built; changes in the meantime are applied to
    both.

    Args:
        tuning: The store of publications.
        storage: The storage for the index.
        store_id: The id of the store: servers may share a Redis.
        before: The neighbourhood of an earlier group with the same name, which used the same storage.
    """

    def __init__(
        self,
        group: Group,
        tuning: TuningStore,
        storage: IndexStorage,
        store_id: str,
        before: "Neighbourhood | None" = None,
    ) -> None:
        self.group = group
        self._tuning = tuning
        self._measure = correlation(group.correlation, group.settings)
        name = f"{store_id}:{group.name}"
        self._index, self._next = (
            PeerIndex(storage, f"{name}:{which}", self._measure.dimension) for which in "ab"
        )
        self._before = before
        self._turn = asyncio.Lock()
        self._changes: dict[str, Floats | None] = {}
        self._growth: asyncio.Task[None] | None = None

    async def settled(self) -> None:
        """Wait until all requests are done and no index is being built."""
        async with self._turn:
            growth = self._growth
        if growth is not None:
            await asyncio.wait([growth])

    async def clear(self) -> None:
        """Remove all members; the index is rebuilt at its next use."""
        await self.settled()
        for index in self._index, self._next:
            await self._in_turn(index.clear)

    def check(self, hints: Hints) -> None:
        """Raise `MistifyError` INVALID_PUBLICATION if the group's measure cannot use the hints."""
        self._measure.point(hints)

    async def place(self, member: str, hints: Hints) -> None:
        """Insert a member at the point of its hints."""
        await asyncio.shield(self._change(member, self._measure.point(hints)))

    def forget(self, member: str) -> None:
        """Remove a member in the background."""
        self._change(member, None).add_done_callback(self._left)

    async def nearest(self, member: str, hints: Hints, count: int) -> list[Neighbour]:
        """Return the other members nearest to a member's hints, nearest first."""
        point = self._measure.point(hints)
        neighbours = await asyncio.shield(self._in_turn(lambda: self._whole().query(point, count + 1)))
        return [neighbour for neighbour in neighbours if neighbour.member != member][:count]

    def _left(self, change: asyncio.Task[None]) -> None:
        if not change.cancelled() and (error := change.exception()) is not None:
            # The index is rebuilt without the member at its next use.
            _log.warning("the index of the group %s still has a member that left: %s", self.group.name, error)

    def _change(self, member: str, point: Floats | None) -> asyncio.Task[None]:
        if self._growth is not None:
            self._changes[member] = point
        return self._in_turn(lambda: _put(self._whole(), member, point))

    def _in_turn(self, use: Callable[[], _T]) -> asyncio.Task[_T]:
        """Use the index after all earlier requests.

        This runs in a separate task, because the thread continues to use the index even if the caller is
        cancelled.
        """

        async def in_turn() -> _T:
            async with self._turn:
                if self._before is not None:
                    await self._before.settled()
                    self._before = None
                used = await asyncio.to_thread(use)
                if self._index.outgrown and self._growth is None:
                    self._changes = {}
                    self._growth = asyncio.create_task(self._grow())
                return used

        return asyncio.create_task(in_turn())

    def _whole(self) -> PeerIndex:
        if not self._index.whole():
            self._build(self._index)
        return self._index

    async def _grow(self) -> None:
        try:
            await asyncio.to_thread(self._build, self._next)
            async with self._turn:
                await asyncio.to_thread(self._catch_up, dict(self._changes))
                self._index, self._next = self._next, self._index
            await asyncio.to_thread(self._next.clear)
        except MistifyError as error:  # the next use of the index retries
            _log.warning("the index of the group %s must be rebuilt: %s", self.group.name, error)
        finally:
            self._growth = None

    def _catch_up(self, changes: Mapping[str, Floats | None]) -> None:
        for member, point in changes.items():
            _put(self._next, member, point)

    def _build(self, index: PeerIndex) -> None:
        published = self._tuning.publications(self.group.name)
        index.build({member: self._measure.point(entry.hints) for member, entry in published.items()})


class Neighbourhoods:
    """The groups' neighbourhoods, each created on first use, on the event loop."""

    def __init__(self, tuning: TuningStore, storage: IndexStorage) -> None:
        self._tuning = tuning
        self._storage = storage
        self._store_id = tuning.store_id()
        self._made: dict[str, Neighbourhood] = {}

    def of(self, group: Group) -> Neighbourhood:
        """Return the neighbourhood of a group."""
        made = self._made.get(group.name)
        if made is None or made.group != group:
            made = Neighbourhood(group, self._tuning, self._storage, self._store_id, made)
            self._made[group.name] = made
        return made

    def forget(self, group: str, member: str) -> None:
        """Remove a member from a group's neighbourhood, if it exists."""
        if group in self._made:
            self._made[group].forget(member)

    async def sweep(self) -> None:
        """Clear the neighbourhoods of removed groups."""
        groups = {group.name for group in await asyncio.to_thread(self._tuning.groups)}
        for name in self._made.keys() - groups:
            await self._made[name].clear()


def _put(index: PeerIndex, member: str, point: Floats | None) -> None:
    """Insert a member, or remove it if it has no point."""
    if point is None:
        index.remove(member)
    else:
        index.insert(member, point)
