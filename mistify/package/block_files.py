"""Networks in the files of a directory; each file is opened once and verified at every read."""

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from os import fstat
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from mistify.errors import MistifyError, Problem
from mistify.package.records import NamedFile, PackagedFile, corrupt_package, digest_of

#: Errors of a process or machine that has too little of something; the file may be in order.
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


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
            MistifyError: CORRUPT_PACKAGE, naming the file: it is missing, damaged, or from another network,
                or cannot be read, for example without permission.
            OSError: Too many files are open, or there is not enough memory.
        """
        with self.mapped(variant) as content:
            return bytes(content)

    @contextmanager
    def mapped(self, variant: NamedFile) -> Iterator[bytes | mmap]:
        """Return a context with the content of a variant's file, memory-mapped for its duration.

        Raises:
            MistifyError: CORRUPT_PACKAGE, naming the file: it is missing, damaged, or from another network,
                or cannot be read, for example without permission.
            OSError: Too many files are open, or there is not enough memory.
        """
        file, expected = self._file(variant), variant.content
        if expected.size and fstat(file.fileno()).st_size == expected.size:
            with mmap(file.fileno(), 0, access=ACCESS_READ) as mapped:
                if PackagedFile.of(mapped) == expected:
                    yield mapped
                    return
        try:
            with self._reported(variant):
                content = file.read()  # cannot be mapped, such as an empty file or a pipe, or is damaged
        finally:
            self.forget([variant.file])
        actual = PackagedFile.of(content)
        if actual != expected:
            raise self._damaged(variant, digest_of(actual))
        yield content

    def _file(self, variant: NamedFile) -> BinaryIO:
        if variant.file not in self._opened:
            with self._reported(variant):
                self._opened[variant.file] = (self.directory / variant.file).open("rb")
        return self._opened[variant.file]

    @contextmanager
    def _reported(self, variant: NamedFile) -> Iterator[None]:
        """Report that a file is missing or cannot be read as damage."""
        expected = f"{variant.content.size} bytes"
        try:
            yield
        except FileNotFoundError as error:
            raise self._damaged(variant, "no such file", expected) from error
        except OSError as error:
            if error.errno in _SHORTAGES:
                raise
            reason, fix = error.strerror or str(error), "check its permissions, or fetch it again"
            raise self._damaged(variant, reason, expected, fix) from error

    def _damaged(
        self, variant: NamedFile, actual: str, expected: str | None = None, fix: str = "fetch it again"
    ) -> MistifyError:
        path = str(self.directory / variant.file)
        problem = Problem(path, actual, expected or digest_of(variant.content), fix)
        return corrupt_package(self.directory, [problem])
