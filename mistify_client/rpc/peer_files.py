"""The weights of peers on the device: resumable, verified downloads, kept while in use."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.files.writing import PART, open_partial, sync_file
from mistify.package.records import describe_file
from mistify.peers.membership import Peer

_SUFFIX = ".weights"
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class PeerFile:
    """A peer and the file with its weights."""

    peer: Peer
    path: Path


class PeerFiles:
    """A directory of weights, named by their digests; one process uses it at a time. Created when needed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._damaged: Counter[str] = Counter()

    def held(self) -> dict[str, int]:
        """Return SHA-256 -> number of bytes already downloaded, for all weights in the directory.

        Complete weights that were damaged on the disk are removed, so that they are downloaded again.
        """
        for path in self._directory.glob(f"*{_SUFFIX}"):
            if not _is_undamaged(path):
                path.unlink()
        paths = self._directory.glob(f"*{_SUFFIX}*")
        return {path.name.partition(".")[0]: path.stat().st_size for path in paths}

    def receive(self, parts: Iterable[Peer | bytes]) -> Iterator[PeerFile]:
        """Write weights as they arrive; yield each peer as soon as its weights are complete.

        Args:
            parts: Peers, each followed by the missing bytes of its weights.

        Raises:
            MistifyError: UNAVAILABLE if weights do not match their digest; they are removed, so that the
                next attempt downloads them again. CORRUPT_PACKAGE if that happens a second time.
            OSError: Weights cannot be written, for example because the disk is full.
        """
        peer = None
        for part in parts:
            if isinstance(part, Peer):
                peer = part
            elif peer is not None:
                self._append(peer, part)
            if peer is not None and self._is_complete(peer):
                yield PeerFile(peer, self._path(peer))
                peer = None

    def keep(self, digests: Collection[str]) -> None:
        """Remove all weights except those with these digests."""
        for path in self._directory.glob(f"*{_SUFFIX}*"):
            if path.name.partition(".")[0] not in digests:
                path.unlink()

    def _append(self, peer: Peer, data: bytes) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        with open_partial(self._part(peer)) as file:
            file.write(data)
            sync_file(file)

    def _is_complete(self, peer: Peer) -> bool:
        """Return True if a peer's weights are complete, and verify them as soon as they are."""
        part, path = self._part(peer), self._path(peer)
        if path.is_file():
            return True
        if not part.is_file() or part.stat().st_size < peer.size:
            return False
        actual = describe_file(part)
        if (actual.size, actual.sha256) == (peer.size, peer.sha256):
            part.replace(path)
            return True
        part.unlink()
        self._damaged[peer.sha256] += 1
        again = self._damaged[peer.sha256] > 1
        raise MistifyError(
            ErrorCode.CORRUPT_PACKAGE if again else ErrorCode.UNAVAILABLE,
            f"the weights of the peer {peer.member} did not arrive as the server described them "
            f"({peer.size} bytes, SHA-256 {peer.sha256})" + (", twice" if again else ""),
        )

    def _path(self, peer: Peer) -> Path:
        """Return the path of a peer's weights; a digest from the server must not point elsewhere."""
        if not _DIGEST.fullmatch(peer.sha256):
            raise MistifyError(ErrorCode.CORRUPT_PACKAGE, f"{peer.sha256!r} is not the digest of weights")
        return self._directory / (peer.sha256 + _SUFFIX)

    def _part(self, peer: Peer) -> Path:
        path = self._path(peer)
        return path.with_name(path.name + PART)


def _is_undamaged(path: Path) -> bool:
    """Check whether complete weights have the digest in their name."""
    try:
        return describe_file(path).sha256 == path.name.removesuffix(_SUFFIX)
    except OSError:  # a sector that cannot be read
        return False
