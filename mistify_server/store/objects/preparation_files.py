"""The files of preparations in a bucket, so that a machine continues what another one has begun."""

from collections.abc import Mapping
from typing import Final

from typing_extensions import override

from mistify_server.store.objects.bucket import CLOCKS_SECONDS, Bucket
from mistify_server.store.preparation_files import PreparationFiles

#: Beginning of their keys in the bucket.
_START: Final = "preparations/"


class BucketPreparationFiles(PreparationFiles):
    """The files of preparations in a bucket. Methods raise the errors of `Bucket`."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    @override
    def read(self, key: str, name: str) -> bytes:
        return self._bucket.read(f"{_START}{key}/{name}") or b""

    @override
    def write(self, key: str, name: str, content: bytes) -> None:
        self._bucket.write(f"{_START}{key}/{name}", content)

    @override
    def keep_only(self, key: str, name: str) -> None:
        for other in self._bucket.all(f"{_START}{key}/").keys() - {f"{_START}{key}/{name}"}:
            self._bucket.remove(other)

    @override
    def written(self) -> Mapping[str, float]:
        """Return the latest possible times by the clock of this machine."""
        latest: dict[str, float] = {}
        for path, stored in self._bucket.all(_START).items():
            key = path.removeprefix(_START).partition("/")[0]
            latest[key] = max(latest.get(key, 0.0), stored.stored + CLOCKS_SECONDS)
        return latest

    @override
    def remove(self, key: str) -> int:
        objects = self._bucket.all(f"{_START}{key}/")
        for path in objects:
            self._bucket.remove(path)
        return sum(each.size for each in objects.values())
