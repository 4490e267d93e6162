"""Nearest-neighbour index of members by their points: candidates from buckets, ranked exactly (paper 5.2)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple
from uuid import uuid4
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mistify_server.tuning.hashing import KEY_BYTES, Floats, Hashes, Keys, Parameters
from mistify_server.tuning.parameters import EXHAUSTIVE, choose
from mistify_server.tuning.storage import IndexStorage

#: Growth in the number of points, since the parameters were chosen, at which an index is outgrown.
GROWTH: Final = 4

#: Approximate number of sampled members that are compared with a point far from all others.
_SAMPLE: Final = 500
_SAMPLE_KEY: Final = b"sample"

#: Key of the entry that identifies the build.
_BUILD_KEY: Final = b"build"

_MEMBER_BYTES: Final = 16
_KEY: Final = f"V{KEY_BYTES}"

#: Maximum number of rows per value of a bucket: this many are rewritten when a member leaves.
_RUN: Final = 64

#: Number of keys that are removed at once.
_BLOCK: Final = 10_000


class Neighbour(NamedTuple):
    """A member and the distance to its point."""

    member: str
    distance: float


class PeerIndex:
    """The points of members in a Euclidean space. Members are identified by 16 bytes in hex.

    Buckets contain members together with their points, so that ranking needs only one round trip to the
    storage. A value holds many rows, because adjacent data are read much faster. The run time of methods is
    sublinear in the number of members, except for `build` and `clear`.

    All methods raise `MistifyError` UNAVAILABLE if the storage cannot be reached.

    Args:
        storage: The storage for the buckets.
        name: Name of the index in the storage.
        dimension: Dimension of the points.
        parameters: Parameters of the index; if None, `build` chooses them.
        seed: Seed of the hashes.
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
        # Rows consist of 8-byte numbers, so that buckets can be read as one matrix.
        self._row = np.dtype([("member", f"V{_MEMBER_BYTES}"), ("point", "<f8", (dimension,))])
        self._count = 0
        self._choose(np.empty((0, dimension)))

    def __len__(self) -> int:
        return self._count

    @property
    def outgrown(self) -> bool:
        """Return whether the index has grown so much that rebuilding would make it faster."""
        return self._fixed is None and self._count > GROWTH * self._chosen_for

    def whole(self) -> bool:
        """Check whether the index is complete: it was built, and no change was interrupted or lost."""
        build_id = self._build_id
        with self._changing():  # an unavailable storage misses changes
            return bool(build_id and self._entries.get(_BUILD_KEY) == [build_id])

    def clear(self) -> None:
        """Remove all members and everything stored under the index's name."""
        self._build_id = b""
        self._open()  # discard the buffer of an interrupted build
        with self._storage.reached():
            for storage in (self._entries, self._buckets):
                _clear(storage)
        self._count = 0

    def build(self, points: Mapping[str, ArrayLike]) -> None:
        """Rebuild the index with exactly these members and suitable parameters."""
        self.clear()
        with self._storage.reached():
            matrix = np.array(list(points.values()), np.float64).reshape(len(points), self._dimension)
            self._count = len(points)
            self._choose(matrix)
            self._fill([bytes.fromhex(member) for member in points], matrix)
            build_id = uuid4().bytes
            self._entries.insert(_BUILD_KEY, build_id)
        self._build_id = build_id

    def insert(self, member: str, point: ArrayLike) -> None:
        """Insert a member, or move it to another point."""
        self.remove(member)
        name, vector = bytes.fromhex(member), np.asarray(point, np.float64)
        keys = self._hashes.keys(vector[None]).tobytes() + self._sample_key(name)
        with self._changing():
            self._entries.insert(name, keys)
            for key in _split(keys):
                self._buckets.insert(key, name + vector.tobytes())
        self._count += 1

    def remove(self, member: str) -> None:
        """Remove a member, if present."""
        name = bytes.fromhex(member)
        with self._changing():
            entry = self._entries.get(name)
            if not entry:
                return
            (keys,) = entry
            self._entries.remove(name)
            for key in _split(keys):
                self._take_out(name, key)
        self._count -= 1

    def query(self, point: ArrayLike, count: int) -> list[Neighbour]:
        """Return up to `count` nearest members, nearest first and ties by name.

        Distances are exact, and no other member in the same buckets is nearer. Members that share no bucket
        with the point are missed: on average, about one in twenty of the ten nearest.
        """
        point = np.asarray(point, np.float64)
        with self._storage.reached():
            runs = self._held(self._hashes.probes(point).view(_KEY).tolist())
            nearest = self._ranked(runs, point, count, self._tables)
            if len(nearest) < count:
                nearest = self._ranked([*runs, *self._held([_SAMPLE_KEY])], point, count, self._tables + 1)
        return nearest

    def _open(self) -> None:
        self._entries = self._storage.lists(f"mistify:{self._name}:entries:".encode())
        self._buckets = self._storage.sets(f"mistify:{self._name}:buckets:".encode())

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Guard a change: if it is interrupted, the index is no longer complete."""
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
        self._tables = parameters.tables

    def _fill(self, names: list[bytes], matrix: Floats) -> None:
        """Write the entries and the buckets of an empty index for members [members, dimension]."""
        rows = np.empty(len(names), self._row)
        rows["member"], rows["point"] = np.frombuffer(b"".join(names), f"V{_MEMBER_BYTES}"), matrix
        keys = self._hashes.keys(matrix)
        samples = [self._sample_key(name) for name in names]
        for name, own, sample in zip(names, keys, samples, strict=True):
            self._entries.insert(name, own.tobytes() + sample, buffer=True)
        for table in keys.T:
            self._write_buckets(table, rows)
        self._write_runs(_SAMPLE_KEY, rows[np.array(samples, bool)].tobytes())
        for storage in (self._entries, self._buckets):
            storage.empty_buffer()

    def _write_buckets(self, keys: Keys, rows: NDArray[np.void]) -> None:
        """Write the buckets of a table, given the key of each row."""
        order = np.argsort(keys)
        names, starts = np.unique(keys[order], return_index=True)
        content = rows[order].tobytes()
        bounds = [*(starts * self._row.itemsize).tolist(), len(content)]
        for key, (start, end) in zip(names.view(_KEY).tolist(), pairwise(bounds), strict=True):
            self._write_runs(key, content[start:end])

    def _write_runs(self, key: bytes, rows: bytes) -> None:
        """Write rows into a bucket, many in one value."""
        length = _RUN * self._row.itemsize
        for start in range(0, len(rows), length):
            self._buckets.insert(key, rows[start : start + length], buffer=True)

    def _take_out(self, name: bytes, key: bytes) -> None:
        """Remove a member from a bucket."""
        for run in self._held([key]):
            rows = np.frombuffer(run, self._row)
            others = rows[rows["member"] != np.void(name)]
            if len(others) < len(rows):
                self._buckets.remove_val(key, run)
                if len(others):
                    self._buckets.insert(key, others.tobytes())
        if not self._buckets.get(key):  # datasketch keeps the key of an empty bucket
            self._buckets.remove(key)

    def _sample_key(self, name: bytes) -> bytes:
        """Return the key of the sample if a member belongs to it, otherwise an empty key."""
        return _SAMPLE_KEY if crc32(name) * self._chosen_for < _SAMPLE << 32 else b""

    def _held(self, keys: list[bytes]) -> list[bytes]:
        """Return the content of these buckets: runs of rows."""
        return list(chain.from_iterable(self._buckets.getmany(*keys)))

    def _ranked(self, runs: list[bytes], point: Floats, count: int, copies: int) -> list[Neighbour]:
        """Return the members in some buckets nearest to a point; each member has up to `copies` copies."""
        content, size = b"".join(runs), self._row.itemsize
        offsets = np.frombuffer(content).reshape(-1, size // 8)[:, _MEMBER_BYTES // 8 :] - point
        squares = np.vecdot(offsets, offsets)
        most = count * copies
        furthest = np.partition(squares, most - 1)[most - 1] if len(squares) > most else np.inf
        (kept,) = (squares <= furthest).nonzero()
        starts = (size * kept).tolist()
        names = [content[start : start + _MEMBER_BYTES] for start in starts]
        distances = dict(zip(names, np.sqrt(squares[kept]).tolist(), strict=True))
        nearest = sorted(zip(distances.values(), distances, strict=True))[:count]
        return [Neighbour(name.hex(), distance) for distance, name in nearest]


def _split(keys: bytes) -> list[bytes]:
    """Split concatenated keys; the last one may be of another length."""
    return [keys[start : start + KEY_BYTES] for start in range(0, len(keys), KEY_BYTES)]


def _clear(storage: Any) -> None:
    """Remove everything from a storage."""
    keys = list(storage.keys())
    for start in range(0, len(keys), _BLOCK):
        storage.remove(*keys[start : start + _BLOCK])
