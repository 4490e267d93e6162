"""Which members of a group are correlated with which: an index per group, made from the store."""

from mistify.correlation import Correlation, correlation
from mistify.hints import Hints
from mistify_server.coordinator.index import Neighbour, PeerIndex
from mistify_server.coordinator.storage import IndexStorage
from mistify_server.store.tuning import Group, TuningStore


class Neighbourhood:
    """The published models of a group by where their devices' hints lie."""

    def __init__(self, measure: Correlation, index: PeerIndex) -> None:
        self._measure = measure
        self._index = index

    def check(self, hints: Hints) -> None:
        """Raise `MistifyError` INVALID_PUBLICATION where the group's measure cannot use the hints."""
        self._measure.point(hints)

    def place(self, member: str, hints: Hints) -> None:
        """Put a member where its hints lie."""
        self._index.insert(member, self._measure.point(hints))

    def forget(self, member: str) -> None:
        """Take out a member."""
        self._index.remove(member)

    def nearest(self, member: str, hints: Hints, count: int) -> list[Neighbour]:
        """The members nearest to a member's hints, without itself, the nearest first."""
        found = self._index.query(self._measure.point(hints), count + 1)
        return [neighbour for neighbour in found if neighbour.member != member][:count]


class Neighbourhoods:
    """The groups' neighbourhoods; each is made when it is first asked for.

    The store is what counts: an index in Redis is filled anew by a server that starts.
    """

    def __init__(self, tuning: TuningStore, storage: IndexStorage) -> None:
        self._tuning = tuning
        self._storage = storage
        self._made: dict[str, tuple[Group, Neighbourhood]] = {}

    def of(self, group: Group) -> Neighbourhood:
        """The neighbourhood of a group."""
        made_for, neighbourhood = self._made.get(group.name, (None, None))
        if neighbourhood is None or made_for != group:
            neighbourhood = self._make(group)
            self._made[group.name] = group, neighbourhood
        return neighbourhood

    def forget(self, group: str, member: str) -> None:
        """Take a member out of a group's neighbourhood, if that was made."""
        if group in self._made:
            self._made[group][1].forget(member)

    def _make(self, group: Group) -> Neighbourhood:
        measure = correlation(group.correlation, group.settings)
        index = PeerIndex(self._storage, group.name, measure.dimension)
        published = self._tuning.publications(group.name)
        index.build({member: measure.point(entry.hints) for member, entry in published.items()})
        return Neighbourhood(measure, index)
