"""Who sent each upload, and how many bytes the server keeps for each of them."""

from collections import Counter
from pathlib import Path


class UploadSenders:
    """The senders of uploads: `NAME/DIGEST` in a directory is an empty file for each upload.

    Not thread-safe.

    Args:
        directory: The directory; created if it does not exist.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._senders: dict[str, str] = {}
        # After a crash, or in a repeated backup, an earlier sender may be there as well.
        for path in sorted(directory.glob("*/*"), key=lambda each: each.stat().st_mtime_ns):
            if (earlier := self._senders.get(path.name)) is not None:
                (directory / earlier / path.name).unlink(missing_ok=True)
            self._senders[path.name] = path.parent.name
        self._bytes: Counter[str] = Counter()

    def sent_by(self, sender: str) -> int:
        """Return the bytes that are kept for a sender."""
        return self._bytes[sender]

    def sender_of(self, digest: str) -> str | None:
        """Return who sent an upload; None if unknown."""
        return self._senders.get(digest)

    def count(self, digest: str, change: int) -> None:
        """Count more or fewer bytes of an upload, for its sender."""
        sender = self._senders.get(digest)
        if sender is not None:
            self._bytes[sender] += change

    def assign(self, digest: str, sender: str, size: int) -> None:
        """Record who sends an upload, with its counted bytes, in place of an earlier sender.

        Raises:
            OSError: The file cannot be written.
        """
        if self._senders.get(digest) != sender:
            place = self._directory / sender / digest
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
            self.forget(digest, size)
            self._senders[digest] = sender
            self.count(digest, size)

    def forget(self, digest: str, size: int = 0) -> None:
        """Forget the sender of an upload, for whom some bytes are still counted."""
        sender = self._senders.get(digest)
        if sender is not None:
            self.count(digest, -size)
            del self._senders[digest]
            (self._directory / sender / digest).unlink(missing_ok=True)

    def forget_others(self, digests: set[str]) -> None:
        """Forget the senders of all other uploads, which a killed server has removed."""
        for digest in self._senders.keys() - digests:
            self.forget(digest)
