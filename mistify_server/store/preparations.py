"""Storage of algorithms' preparations by key: first the finished parts, then the complete artifact.

A key is a digest of all inputs of a preparation, so it identifies the preparation across jobs.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import locked
from mistify_server.store.artifacts import PREPARATIONS, Artifacts, digest_of, writing

#: Name of the file that holds the artifact's name once it exists, and the artifact's suffix.
_MADE: Final = ".made"
_SUFFIX: Final = ".prepared"


class Preparations:
    """The preparations in a store. Any number of processes can use them concurrently.

    Args:
        artifacts: The artifacts of the same store.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        self._files = artifacts.preparation_files()
        self._locks = artifacts.directory / PREPARATIONS

    @contextmanager
    def held(self, key: str) -> Iterator[None]:
        """Lock a preparation within the block, so that others that need it wait and then use its artifact.

        Machines without a shared disk do not wait for each other, and may make the same one twice.

        Raises:
            MistifyError: UNAVAILABLE, the disk is full or cannot be written.
        """
        lock = self._locks / key
        with writing(lock):
            lock.mkdir(parents=True, exist_ok=True)
        with locked(lock):
            yield

    def artifact(self, key: str) -> str | None:
        """Return the artifact of a finished preparation, marked as in use; None if there is no intact one.

        Raises:
            MistifyError: UNAVAILABLE or STORE_REFUSED, it cannot be read or marked.
        """
        made = self._made(key)
        if not made:
            return None
        try:
            content = self._artifacts.intact(made).read_bytes()
        except FileNotFoundError:
            return None
        except MistifyError as error:
            if error.code is not ErrorCode.CORRUPT_PACKAGE:
                raise
            return None
        return self._artifacts.put(content, _SUFFIX)

    def finish(self, key: str, content: bytes) -> str:
        """Store a complete preparation as an artifact, remove its parts, and return the artifact's name."""
        name = self._artifacts.put(content, _SUFFIX)
        self.keep(key, _MADE, name.encode())
        self._files.keep_only(key, _MADE)
        return name

    def part(self, key: str, name: str) -> bytes:
        """Return a part of a preparation; empty if it is not stored."""
        return self._files.read(key, name)

    def keep(self, key: str, name: str, content: bytes) -> None:
        """Store a part of a preparation; it is safely stored on return.

        Raises:
            MistifyError: UNAVAILABLE, the disk is full or cannot be written.
        """
        with writing(self._locks / key):
            self._files.write(key, name, content)

    def beside(self, artifact: str) -> str:
        """Return the key of parts that are derived from a finished preparation, and removed with it.

        Raises:
            MistifyError: UNAVAILABLE, the disk is full or cannot be written.
        """
        key = digest_of(artifact)
        if not self.part(key, _MADE):
            self.keep(key, _MADE, artifact.encode())
        return key

    def remove_unused(self, referenced: Collection[str], before: float, *, with_parts: bool) -> int:
        """Remove preparations with unreferenced artifacts.

        Args:
            referenced: Digests of all referenced artifacts.
            before: Seconds since 1970; files written at this time or later are kept.
            with_parts: Whether to remove unfinished preparations too.

        Returns:
            Number of bytes freed, not counting artifacts.
        """
        return sum(
            self._files.remove(key)
            for key, written in self._files.written().items()
            if written < before and self._is_unused(key, referenced, with_parts)
        )

    def _made(self, key: str) -> str:
        """Return the artifact of a finished preparation; empty if it is not finished."""
        return self._files.read(key, _MADE).decode()

    def _is_unused(self, key: str, referenced: Collection[str], with_parts: bool) -> bool:
        made = self._made(key)
        return digest_of(made) not in referenced if made else with_parts
