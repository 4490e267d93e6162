"""The weights of peers on the device: resumable, verified, kept while they are used."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.files import PART, sync_file
from mistify.package.manifest import describe_file
from mistify.peers.membership import Peer

_SUFFIX = ".weights"
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class PeerFile:
    """A peer, and the file with its weights."""

    peer: Peer
    path: Path


class PeerFiles:
    """Weights by their digests in a directory, made where there is none, that one process uses at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._damaged: Counter[str] = Counter()

    def held(self) -> dict[str, int]:
        """SHA-256 -> how many first bytes of these weights are there."""
        paths = self._directory.glob(f"*{_SUFFIX}*")
        return {path.name.partition(".")[0]: path.stat().st_size for path in paths}

    def receive(self, parts: Iterable[Peer | bytes]) -> Iterator[PeerFile]:
        """Write what arrives: each peer as soon as its weights are complete.

        Raises:
            MistifyError: UNAVAILABLE, weights are not what their digest says and were removed, so that
                another attempt gets them again; CORRUPT_PACKAGE, they are so the second time.
            OSError: they cannot be written, for example on a full disk.
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
        """Remove the weights that have none of these digests."""
        for path in self._directory.glob(f"*{_SUFFIX}*"):
            if path.name.partition(".")[0] not in digests:
                path.unlink()

    def _append(self, peer: Peer, data: bytes) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._part(peer).open("ab") as file:
            file.write(data)
            sync_file(file)

    def _is_complete(self, peer: Peer) -> bool:
        """Whether all of a peer's weights are there; what has just become complete is verified."""
        part, path = self._part(peer), self._path(peer)
        if path.is_file():
            return True
        if not part.is_file() or part.stat().st_size < peer.size:
            return False
        found = describe_file(part)
        if (found.size, found.sha256) == (peer.size, peer.sha256):
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
        """Where a peer's weights belong; the name comes from the server and must not lead anywhere else."""
        if not _DIGEST.fullmatch(peer.sha256):
            raise MistifyError(ErrorCode.CORRUPT_PACKAGE, f"{peer.sha256!r} is not the digest of weights")
        return self._directory / (peer.sha256 + _SUFFIX)

    def _part(self, peer: Peer) -> Path:
        path = self._path(peer)
        return path.with_name(path.name + PART)
