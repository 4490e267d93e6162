"""Which members of a group are correlated with which: an index per group, made from the store."""

import asyncio
import logging
from typing import NamedTuple

from mistify.correlation import correlation
from mistify.errors import MistifyError
from mistify.hints import Hints
from mistify_server.coordinator.hashing import Floats
from mistify_server.coordinator.index import Neighbour, PeerIndex
from mistify_server.coordinator.storage import IndexStorage
from mistify_server.store.tuning import Group, TuningStore

_log = logging.getLogger(__name__)


class Neighbourhood:
    """The published models of a group by where their devices' hints lie.

    The index is built in another thread. One that its members have outgrown goes on answering until the next
    one is built; what changes meanwhile goes into both.
    """

    def __init__(self, group: Group, tuning: TuningStore, storage: IndexStorage) -> None:
        self._group = group
        self._tuning = tuning
        self._measure = correlation(group.correlation, group.settings)
        self._index, self._next = (
            PeerIndex(storage, f"{group.name}:{which}", self._measure.dimension) for which in "ab"
        )
        self._changes: dict[str, Floats | None] = {}
        self._growth: asyncio.Task[None] | None = None

    async def fill(self) -> None:
        """Build the index from the store."""
        await asyncio.to_thread(self._build, self._index)

    async def settled(self) -> None:
        """Wait until nothing is being built."""
        if self._growth is not None:
            await asyncio.wait([self._growth])

    def check(self, hints: Hints) -> None:
        """Raise `MistifyError` INVALID_PUBLICATION where the group's measure cannot use the hints."""
        self._measure.point(hints)

    def place(self, member: str, hints: Hints) -> None:
        """Put a member where its hints lie."""
        self._change(member, self._measure.point(hints))
        if self._index.outgrown and self._growth is None:
            self._changes = {}
            self._growth = asyncio.create_task(self._grow())

    def forget(self, member: str) -> None:
        """Take out a member."""
        self._change(member, None)

    def nearest(self, member: str, hints: Hints, count: int) -> list[Neighbour]:
        """The members nearest to a member's hints, without itself, the nearest first."""
        found = self._index.query(self._measure.point(hints), count + 1)
        return [neighbour for neighbour in found if neighbour.member != member][:count]

    def _change(self, member: str, point: Floats | None) -> None:
        _put(self._index, member, point)
        if self._growth is not None:
            self._changes[member] = point

    async def _grow(self) -> None:
        try:
            await asyncio.to_thread(self._build, self._next)
            for member, point in self._changes.items():
                _put(self._next, member, point)
            self._index, self._next = self._next, self._index
            await asyncio.to_thread(self._next.clear)
        except MistifyError as error:  # the next member that is placed has it tried again
            _log.warning("the index of the group %s was to be built anew: %s", self._group.name, error)
        finally:
            self._growth = None

    def _build(self, index: PeerIndex) -> None:
        published = self._tuning.publications(self._group.name)
        index.build({member: self._measure.point(entry.hints) for member, entry in published.items()})


class Neighbourhoods:
    """The groups' neighbourhoods; each is made when it is first asked for.

    The store is what counts: an index in Redis is filled anew by a server that starts.
    """

    def __init__(self, tuning: TuningStore, storage: IndexStorage) -> None:
        self._tuning = tuning
        self._storage = storage
        self._made: dict[str, _Made] = {}

    async def of(self, group: Group) -> Neighbourhood:
        """The neighbourhood of a group."""
        made = self._made.get(group.name)
        if made is None or made.group != group or made.failed:
            made = self._made[group.name] = _Made(group, asyncio.create_task(self._make(group, made)))
        return await asyncio.shield(made.task)  # it is made for all who ask, though one of them goes away

    def forget(self, group: str, member: str) -> None:
        """Take a member out of a group's neighbourhood, if that was made."""
        made = self._made.get(group)
        if made is not None and made.done:
            made.task.result().forget(member)

    async def _make(self, group: Group, before: "_Made | None") -> Neighbourhood:
        """Make one, in place of that of another group of the name."""
        if before is not None:
            await before.settled()
        neighbourhood = Neighbourhood(group, self._tuning, self._storage)
        await neighbourhood.fill()
        return neighbourhood


class _Made(NamedTuple):
    """A neighbourhood that is made or being made, and for which group."""

    group: Group
    task: asyncio.Task[Neighbourhood]

    @property
    def done(self) -> bool:
        return self.task.done() and not self.failed

    @property
    def failed(self) -> bool:
        return self.task.done() and (self.task.cancelled() or self.task.exception() is not None)

    async def settled(self) -> None:
        """Wait until nothing is being built."""
        await asyncio.wait([self.task])
        if self.done:
            await self.task.result().settled()


def _put(index: PeerIndex, member: str, point: Floats | None) -> None:
    """Put in a member, or take it out where it has no point."""
    if point is None:
        index.remove(member)
    else:
        index.insert(member, point)
