"""Artifacts in a bucket of S3, with copies on the disk of each machine that uses them."""

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from pathlib import Path
from typing import IO, Final

from tenacity import Retrying, retry_if_exception, stop_after_delay
from tenacity.wait import wait_random_exponential
from typing_extensions import override

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import try_lock
from mistify.uploads import UploadName
from mistify_server.store.artifacts import (
    Artifacts,
    digest_of,
    is_artifact,
    is_intact,
    missing,
    unusable,
)
from mistify_server.store.objects.bucket import CLOCKS_SECONDS, CONNECTIONS, Bucket
from mistify_server.store.objects.copies import LocalCopies
from mistify_server.store.objects.preparation_files import BucketPreparationFiles
from mistify_server.store.objects.uploads import SharedUploads
from mistify_server.store.preparation_files import PreparationFiles
from mistify_server.store.upload_directories import UPLOADS

#: Number of uploads until an object is there: a removal of an equal, unused one can coincide with the first.
_UPLOADS: Final = 2

#: First and longest delay between attempts to upload, in seconds.
_FIRST: Final = 0.5
_LONGEST: Final = 10.0


class BucketArtifacts(Artifacts):
    """The artifacts in a bucket. The directory has copies of them; each machine has its own.

    `put` returns once the object is in the bucket. Copies are checked against their names before they are
    used, and fetched if they are missing or damaged. Additional errors of all methods are those of `Bucket`.

    Args:
        directory: Directory of the copies, in that of the store.
        most_bytes: Limit on the total size of the copies.
        patience: Seconds for which an upload is repeated while the bucket is unavailable.
    """

    def __init__(self, directory: Path, bucket: Bucket, most_bytes: float = inf, patience: float = 0) -> None:
        super().__init__(directory)
        self._bucket = bucket
        self._patience = patience
        self._copies = LocalCopies(directory, most_bytes)
        self._uploads = SharedUploads(directory.with_name(UPLOADS), bucket)
        self._unstored = set[str]()

    @override
    def put(self, content: Path | bytes, suffix: str | None = None) -> str:
        name = super().put(content, suffix)
        self.upload(name)
        return name

    def upload(self, name: str) -> None:
        """Store the copy of an artifact in the bucket.

        Raises:
            MistifyError: UNAVAILABLE, the bucket was unavailable for longer than this waits; STORE_REFUSED,
                at once, because waiting would not help.
        """
        self._copies.add(self.place(name).stat().st_size)
        attempts = Retrying(
            retry=retry_if_exception(_is_outage),
            stop=stop_after_delay(self._patience),
            wait=wait_random_exponential(multiplier=_FIRST, max=_LONGEST),
            reraise=True,
        )
        self._unstored.add(name)
        attempts(self._upload, name)
        self._unstored.discard(name)

    def _upload(self, name: str) -> None:
        path = self.place(name)
        size = path.stat().st_size
        for _ in range(_UPLOADS):
            self._bucket.upload(_key(name), path)
            stored = self._bucket.find(_key(name))
            if stored is not None and stored.size == size:
                return
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            f"the bucket with the server's artifacts does not keep {name} as it was stored; check what else "
            "writes to it or removes from it",
        )

    @override
    def path(self, name: str) -> Path:
        path = self.place(name)
        with suppress(FileNotFoundError):
            self._copies.use(path)
        if not is_intact(path, digest_of(name)):
            self.restore(name, self.content(name))
            self._copies.add(path.stat().st_size)
        return path

    @override
    def intact(self, name: str) -> Path:
        try:
            return self.path(name)
        except MistifyError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            raise unusable(name, "is missing") from error

    @override
    def size(self, name: str) -> int:
        stored = self._bucket.find(_key(name))
        if stored is None:
            raise missing(name)
        return stored.size

    @override
    def content(self, name: str) -> Iterator[bytes]:
        content = self._bucket.content(_key(name))
        if content is None:
            raise missing(name)
        return content

    @override
    def share(self, upload: UploadName, place: Callable[[str], Path]) -> None:
        self._uploads.share(upload, place)

    @override
    @contextmanager
    def at_hand(self, paths: Iterable[str]) -> Iterator[None]:
        self._check_uploads()
        with ExitStack() as held:
            for path in map(Path, paths):
                if path.is_relative_to(self.directory) and is_artifact(path.name):
                    held.enter_context(self._locked_copy(path.name))
                self._uploads.fetch(path)
            yield

    @override
    def preparation_files(self) -> PreparationFiles:
        return BucketPreparationFiles(self._bucket)

    @override
    def names(self) -> list[str]:
        named = ((key, key.rpartition("/")[2]) for key in self._bucket.all())
        return [name for key, name in named if is_artifact(name) and key == _key(name)]

    @override
    def remove(self, name: str, before: float = inf) -> int:
        super().remove(name, before)
        stored = self._bucket.find(_key(name))
        if stored is None or stored.stored >= before - CLOCKS_SECONDS:
            return 0
        self._bucket.remove(_key(name))
        return stored.size

    @override
    def remove_shared(self, referenced: Collection[str], before: float = inf) -> None:
        self._uploads.remove_unused(referenced, before - CLOCKS_SECONDS)

    @override
    def remove_all(self, names: Iterable[str], before: float = inf) -> int:
        with ThreadPoolExecutor(CONNECTIONS, "removal") as threads:
            return sum(threads.map(lambda name: self.remove(name, before), names))

    def _check_uploads(self) -> None:
        """Store what could not be stored: no task works in vain while the bucket refuses its results."""
        for name in tuple(self._unstored):
            if self.place(name).exists():
                self.upload(name)
            else:
                self._unstored.discard(name)

    def _locked_copy(self, name: str) -> IO[bytes]:
        """Return a copy that stays until it is closed."""
        copy = self.intact(name).open("rb")
        try_lock(copy, shared=True)
        return copy


def _is_outage(error: BaseException) -> bool:
    return isinstance(error, MistifyError) and error.code is ErrorCode.UNAVAILABLE


def _key(name: str) -> str:
    """Return the key of an artifact: its path below the directory of artifacts."""
    return f"{digest_of(name)[:2]}/{name}"
