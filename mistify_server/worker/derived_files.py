"""Files that are derived from a preparation, made once and kept beside it in the store."""

import hashlib
import json
from collections.abc import Callable

from mistify_server.store.preparations import Preparations


class DerivedFiles:
    """Stores files derived from preparations, and makes those that are missing, damaged or outdated.

    Args:
        preparations: The preparations of the store.
    """

    def __init__(self, preparations: Preparations) -> None:
        self._preparations = preparations

    def get(self, prepared: str, name: str, key: str, make: Callable[[], bytes]) -> bytes:
        """Return the content of a file.

        Args:
            prepared: The artifact of the preparation, with which the file is removed.
            name: Name of the file: letters, digits and hyphens.
            key: A digest of everything that the file depends on. A file with another key is replaced.
            make: Makes the file.

        Raises:
            MistifyError: UNAVAILABLE, the disk is full or cannot be written.
        """
        beside = self._preparations.beside(prepared)
        with self._preparations.held(beside):
            header, _, content = self._preparations.part(beside, name).partition(b"\n")
            if header != _header(key, content):
                content = make()
                self._preparations.keep(beside, name, _header(key, content) + b"\n" + content)
        return content


def _header(key: str, content: bytes) -> bytes:
    return json.dumps({"key": key, "sha256": hashlib.sha256(content).hexdigest()}).encode()
