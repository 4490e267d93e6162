"""Index of members by their points: candidates from buckets, ranked exactly (paper 5.2)."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from uuid import uuid4
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mistify_server.coordinator.hashing import KEY_BYTES, Floats, Hashes, Parameters
from mistify_server.coordinator.parameters import EXHAUSTIVE, choose
from mistify_server.coordinator.storage import IndexStorage

#: An index is outgrown when there are so many times more points than its parameters were chosen for.
GROWTH: Final = 4

#: About so many members, whatever their points, are looked at for a point that is far from all others.
_SAMPLE: Final = 500
_SAMPLE_KEY: Final = b"sample"

#: Among the entries, says which build they are of.
_BUILD_KEY: Final = b"build"

_MEMBER_BYTES: Final = 16
_BLOCK: Final = 10_000


class Neighbour(NamedTuple):
    """A member, and the distance of its point."""

    member: str
    distance: float


class PeerIndex:
    """The points of members, each 16 bytes in hex, in a Euclidean space.

    Buckets hold members together with their points, so that one round trip to the storage is enough to rank
    what they hold. Methods take time that grows slower than the number of members, but for `build` and
    `clear`.

    All raise `MistifyError` UNAVAILABLE where the storage cannot be reached.

    Args:
        storage: where it lives.
        name: of the index in that storage.
        dimension: of the points.
        parameters: None lets `build` choose them.
        seed: of the hashes.
    """

    def __init__(
        self,
        storage: IndexStorage,
        name: str,
        dimension: int,
        parameters: Parameters | None = None,
        seed: int = 0,
    ) -> None:
        self._storage = storage
        self._name = name
        self._open()
        self._build_id = b""
        self._dimension = dimension
        self._fixed = parameters
        self._seed = seed
        self._row = np.dtype([("member", f"V{_MEMBER_BYTES}"), ("point", "<f8", (dimension,))])
        self._count = 0
        self._choose(np.empty((0, dimension)))

    def __len__(self) -> int:
        return self._count

    @property
    def outgrown(self) -> bool:
        """Return whether it has become so large that building it anew would make it faster."""
        return self._fixed is None and self._count > GROWTH * self._chosen_for

    def whole(self) -> bool:
        """Check that nothing is missing: it was built, and no change was interrupted or lost."""
        build_id = self._build_id
        with self._changing():  # a storage that is away misses changes
            return bool(build_id and self._entries.get(_BUILD_KEY) == [build_id])

    def clear(self) -> None:
        """Take out all members; what the storage held under the index' name goes."""
        self._build_id = b""
        self._open()  # what a build that was broken off has left in a buffer is never written
        with self._storage.reached():
            for storage in (self._entries, self._buckets):
                _clear(storage)
        self._count = 0

    def build(self, points: Mapping[str, ArrayLike]) -> None:
        """Put in these members and no others, with parameters that suit them."""
        self.clear()
        with self._storage.reached():
            members = list(points)
            matrix = np.array([points[member] for member in members], np.float64)
            matrix = matrix.reshape(len(members), self._dimension)
            self._count = len(members)
            self._choose(matrix)
            for start in range(0, len(members), _BLOCK):
                block = slice(start, start + _BLOCK)
                self._put(members[block], matrix[block], buffer=True)
            for storage in (self._entries, self._buckets):
                storage.empty_buffer()
            build_id = uuid4().bytes
            self._entries.insert(_BUILD_KEY, build_id)
        self._build_id = build_id

    def insert(self, member: str, point: ArrayLike) -> None:
        """Put in a member, or move it to another point."""
        self.remove(member)
        with self._changing():
            self._put([member], np.asarray(point, np.float64)[None], buffer=False)
        self._count += 1

    def remove(self, member: str) -> None:
        """Take out a member; nothing happens where it is not in."""
        name = bytes.fromhex(member)
        with self._changing():
            entry = self._entries.get(name)
            if not entry:
                return
            row, keys = entry
            self._entries.remove(name)
            for key in _split(keys):
                self._buckets.remove_val(key, row)
                if not self._buckets.get(key):  # datasketch keeps the key of an empty bucket
                    self._buckets.remove(key)
        self._count -= 1

    def query(self, point: ArrayLike, count: int) -> list[Neighbour]:
        """Return up to `count` of the nearest members: nearest first, equal ones by name.

        Their distances are exact, and no member in the same buckets is nearer. Members may be missed that
        share no bucket with the point: about one in twenty of the ten nearest, on average.
        """
        point = np.asarray(point, np.float64)
        with self._storage.reached():
            candidates = self._held(_split(self._hashes.probes(point).tobytes()))
            if len(candidates) < count:
                candidates |= self._held([_SAMPLE_KEY])
        rows = np.frombuffer(b"".join(candidates), self._row)
        offsets = rows["point"] - point
        squares = np.einsum("ij,ij->i", offsets, offsets)
        if len(squares) > count:
            kept = squares <= np.partition(squares, count - 1)[count - 1]
            rows, squares = rows[kept], squares[kept]
        names = [member.tobytes().hex() for member in rows["member"]]
        return sorted(map(Neighbour, names, np.sqrt(squares).tolist()), key=_by_distance)[:count]

    def _open(self) -> None:
        self._entries = self._storage.lists(f"mistify:{self._name}:entries:".encode())
        self._buckets = self._storage.sets(f"mistify:{self._name}:buckets:".encode())

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Guard a change: where it is interrupted, the index is no longer whole."""
        build_id, self._build_id = self._build_id, b""
        with self._storage.reached():
            yield
        self._build_id = build_id

    def _choose(self, matrix: Floats) -> None:
        """Choose parameters and hashes for the points [points, dimension]."""
        rng = np.random.default_rng(self._seed)
        parameters = self._fixed or (choose(matrix, rng) if len(matrix) else EXHAUSTIVE)
        self._hashes = Hashes(parameters, self._dimension, self._seed)
        self._chosen_for = max(len(matrix), _SAMPLE)

    def _put(self, members: list[str], matrix: Floats, *, buffer: bool) -> None:
        """Write entries and buckets of new members [members, dimension], at once or when a buffer is full."""
        names = [bytes.fromhex(member) for member in members]
        rows = [name + point.tobytes() for name, point in zip(names, matrix, strict=True)]
        keys = self._hashes.keys(matrix)
        for name, row, own in zip(names, rows, keys, strict=True):
            sample = _SAMPLE_KEY if crc32(name) * self._chosen_for < _SAMPLE << 32 else b""
            self._entries.insert(name, row, own.tobytes() + sample, buffer=buffer)
            if sample:
                self._buckets.insert(sample, row, buffer=buffer)
        for table in keys.T:
            for key, positions in _grouped(table):
                self._buckets.insert(key, *[rows[position] for position in positions], buffer=buffer)

    def _held(self, keys: list[bytes]) -> set[bytes]:
        """Return the content of these buckets."""
        return set[bytes]().union(*self._buckets.getmany(*keys))


def _by_distance(neighbour: Neighbour) -> tuple[float, str]:
    return neighbour.distance, neighbour.member


def _split(keys: bytes) -> list[bytes]:
    """Split keys that follow each other; the last one may be of another length."""
    return [keys[start : start + KEY_BYTES] for start in range(0, len(keys), KEY_BYTES)]


def _grouped(keys: NDArray[np.uint64]) -> Iterable[tuple[bytes, NDArray[np.int64]]]:
    """Group positions by key; return each key that occurs, with its positions."""
    order = np.argsort(keys)
    different, starts = np.unique(keys[order], return_index=True)
    return zip(map(np.uint64.tobytes, different), np.split(order, starts[1:]), strict=True)


def _clear(storage: Any) -> None:
    """Remove everything from a storage."""
    keys = list(storage.keys())
    for start in range(0, len(keys), _BLOCK):
        storage.remove(*keys[start : start + _BLOCK])
