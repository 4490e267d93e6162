"""Digests of the files that rows refer to."""

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

_DIGEST: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


class DigestReferences:
    """Finds the digests in rows, with a cache for rows that have not changed since the last call."""

    def __init__(self) -> None:
        self._known: dict[bytes, frozenset[str]] = {}

    def of(self, rows: Iterable[str]) -> set[str]:
        """Return every SHA-256 (hex) in the texts of rows."""
        before, known = self._known, {}
        for row in rows:
            key = blake2b(row.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            known[key] = before[key] if key in before else frozenset(_DIGEST.findall(row))
        self._known = known
        return set().union(*known.values())
