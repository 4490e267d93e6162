"""Networks in the files of a directory; each file is opened once and verified at every read."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from os import fstat
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from mistify.errors import MistifyError, Problem
from mistify.package.records import NamedFile, PackagedFile, corrupt_package, digest_of


class BlockFiles:
    """The files of networks, such as a block store, opened at first use and kept open during a `with` block.

    Files of another version of the package that replace them during this time have no effect.

    Attributes:
        directory: The directory of the files, such as a block store.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._opened: dict[str, BinaryIO] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.forget(list(self._opened))

    def has(self, variant: NamedFile) -> bool:
        """Check whether the file of a variant exists and is undamaged."""
        try:
            with self.mapped(variant):
                return True
        except (MistifyError, OSError):
            return False

    def forget(self, names: Iterable[str]) -> None:
        """Close files that were replaced; they are reopened at next use."""
        for name in names:
            if name in self._opened:
                self._opened.pop(name).close()

    def read(self, variant: NamedFile) -> bytes:
        """Return the content of a variant's file.

        Raises:
            MistifyError: CORRUPT_PACKAGE, naming the file: it is missing, damaged, or from another network.
        """
        with self.mapped(variant) as content:
            return bytes(content)

    @contextmanager
    def mapped(self, variant: NamedFile) -> Iterator[bytes | mmap]:
        """Return a context with the content of a variant's file, memory-mapped for its duration.

        Raises:
            MistifyError: CORRUPT_PACKAGE, naming the file: it is missing, damaged, or from another network.
        """
        file, expected = self._file(variant), variant.content
        if expected.size and fstat(file.fileno()).st_size == expected.size:
            with mmap(file.fileno(), 0, access=ACCESS_READ) as mapped:
                if PackagedFile.of(mapped) == expected:
                    yield mapped
                    return
        content = file.read()  # cannot be mapped, such as an empty file or a pipe, or is damaged
        self.forget([variant.file])
        actual = PackagedFile.of(content)
        if actual != expected:
            raise self._damaged(variant, digest_of(actual))
        yield content

    def _file(self, variant: NamedFile) -> BinaryIO:
        if variant.file not in self._opened:
            try:
                self._opened[variant.file] = (self.directory / variant.file).open("rb")
            except FileNotFoundError as error:
                raise self._damaged(variant, "no such file", f"{variant.content.size} bytes") from error
        return self._opened[variant.file]

    def _damaged(self, variant: NamedFile, actual: str, expected: str | None = None) -> MistifyError:
        path = str(self.directory / variant.file)
        problem = Problem(path, actual, expected or digest_of(variant.content), "fetch it again")
        return corrupt_package(self.directory, [problem])
