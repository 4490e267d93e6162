"""Data roots: the only directories, besides uploads, from which models and data are read."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from mistify.config.files import PathKind
from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.validation import InvalidValue
from mistify.uploads import UploadName
from mistify_server.store.uploads import Uploads

_MOST_SUGGESTIONS_FROM = 1000

_OTHER_KIND: Final = {PathKind.FILE: PathKind.DIRECTORY, PathKind.DIRECTORY: PathKind.FILE}


@dataclass(frozen=True)
class DataRoots:
    """Directories with models and data, with all symbolic links resolved.

    Attributes:
        store: Directory of the server's store, which has files of all tenants and secrets: no config can name
            it, a file in it, or a directory that contains it, even if it is below a root.
        uploads: None if the server has no uploads.
    """

    roots: tuple[Path, ...]
    store: Path
    uploads: Uploads | None = None

    @classmethod
    def of(cls, directories: Sequence[Path], store: Path) -> "DataRoots":
        """Return the roots in search order.

        Raises:
            MistifyError: NOT_FOUND, a root is not a directory; INVALID_CONFIG, it is in the store.
        """
        store = store.resolve()
        for directory in directories:
            if not directory.is_dir():
                raise MistifyError(
                    ErrorCode.NOT_FOUND,
                    f"the data root {directory} is not a directory; create it or omit it",
                )
            if directory.resolve().is_relative_to(store):
                raise MistifyError(
                    ErrorCode.INVALID_CONFIG,
                    f"the data root {directory} is in the server's store {store}, whose files configs must "
                    "not read; use a directory outside of it",
                )
        return cls(tuple(directory.resolve() for directory in directories), store)

    def find(self, path: str, kind: PathKind = PathKind.FILE) -> Path:
        """Return the resolved path of a file or upload; relative paths are searched below each root in order.

        Args:
            path: Relative or absolute.
            kind: The kind of file or directory that is expected.

        Raises:
            InvalidValue: There is no such file or directory, or it is not below a root.
        """
        upload = UploadName.parse(path)
        if upload is not None and self.uploads is not None:
            return self._find_upload(upload, kind, self.uploads)
        expected = f"{kind.value} below a data root ({self})"
        outside = other_kind = stored = False
        for candidate in self._candidates(path):
            resolved = Path(os.path.realpath(candidate))
            if self._has_files_of_store(resolved):
                stored = True
                continue
            inside = any(resolved.is_relative_to(root) for root in self.roots)
            other_kind |= inside and _exists(_OTHER_KIND.get(kind), resolved)
            if not _exists(kind, resolved):
                continue
            if inside:
                return resolved
            outside = True
        if other_kind:
            raise _of_other_kind(path, expected, kind)
        if stored:
            raise InvalidValue(path, expected, "the server's store is there; use a directory without it")
        if outside or (os.path.isabs(path) and not self._below_a_root(path)):
            raise InvalidValue(path, expected, "move it there, or add its root")
        raise InvalidValue(path, expected, self._advice(path))

    def __str__(self) -> str:
        return ", ".join(map(str, self.roots)) or "the server has none: --data-root DIR"

    @staticmethod
    def _find_upload(upload: UploadName, kind: PathKind, uploads: Uploads) -> Path:
        path, expected = uploads.find(upload), f"an upload of {kind.value}"
        if _exists(_OTHER_KIND.get(kind), path):
            raise _of_other_kind(upload.name, expected, kind)
        if not _exists(kind, path):
            raise InvalidValue(upload.name, expected, "upload one")
        return path

    def _candidates(self, path: str) -> Iterator[str]:
        if "\0" in path:
            return
        if os.path.isabs(path):
            yield path
            return
        for root in self.roots:
            yield os.path.join(root, path)

    def _has_files_of_store(self, path: Path) -> bool:
        return path.is_relative_to(self.store) or self.store.is_relative_to(path)

    def _below_a_root(self, path: str) -> bool:
        normal = Path(os.path.normpath(path))
        return any(normal.is_relative_to(root) for root in self.roots)

    def _advice(self, path: str) -> str:
        """Suggest a file in the same directory with a similar name, or how to send a file from elsewhere."""
        name = os.path.basename(path)
        for candidate in self._candidates(path):
            near = _nearest(name, self._names_in(os.path.dirname(candidate)))
            if near is not None:
                return f'did you mean "{os.path.join(os.path.dirname(path), near)}"?'
        checks = "check the path; relative paths are searched below every root" if self.roots else ""
        name = name or "NAME"
        sends = f"to send a file: PUT /v1/files/SHA256, and name it upload:SHA256/{name} (mistify port does)"
        return "; ".join(filter(None, [checks, sends]))

    def _names_in(self, directory: str) -> list[str]:
        """Return the names in a directory; empty if it is not below a root or cannot be listed."""
        real = Path(os.path.realpath(directory))
        if real.is_relative_to(self.store) or not any(real.is_relative_to(root) for root in self.roots):
            return []
        with suppress(OSError):
            return sorted(os.listdir(real))[:_MOST_SUGGESTIONS_FROM]
        return []


def _nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name most similar to a given one; None if none is similar both with and without its suffix.

    For example, `nan.npz` resembles `nope2.npz` only by its suffix.
    """
    stem = Path(name).stem
    like = [each for each in names if get_close_matches(stem, [Path(each).stem], n=1)]
    return next(iter(get_close_matches(name, like, n=1)), None)


def _exists(kind: PathKind | None, path: Path) -> bool:
    # `Path.is_file` raises on names that are too long.
    return (kind in (PathKind.FILE, PathKind.EITHER) and os.path.isfile(path)) or (
        kind in (PathKind.DIRECTORY, PathKind.EITHER) and os.path.isdir(path)
    )


def _of_other_kind(path: str, expected: str, kind: PathKind) -> InvalidValue:
    """Return the mistake of a directory in the place of a file, or the other way around."""
    return InvalidValue(path, expected, f"it is {_OTHER_KIND[kind].value}; name another one")
