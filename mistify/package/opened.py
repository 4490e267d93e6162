"""An opened package: its manifest and its block store are read once, and passed on."""

import hashlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mistify.errors import MistifyError, Problem
from mistify.package.blocks import BLOCKS, BLOCKS_FORMAT, BlockStore
from mistify.package.manifest import FORMAT_VERSION, MANIFEST, Manifest
from mistify.package.records import (
    PackagedFile,
    corrupt_package,
    describe_file,
    digest_of,
    parse_record,
    read_content,
)
from mistify.package.signature import PackageSignature, read_signed


@dataclass(frozen=True)
class Package:
    """A package as it was when it was opened; later changes on disk have no effect.

    Attributes:
        manifest: The content of `manifest.json`.
        digest: SHA-256 of `manifest.json`, in hex.
        blocks_json: The content of `blocks.json`; None if the package has no blocks, or the file is missing.
        signature: The signature of the package, of which only the manifest's digest has been checked; None if
            it is not signed.
    """

    directory: Path
    manifest: Manifest
    digest: str
    blocks_json: bytes | None = None
    signature: PackageSignature | None = None

    @classmethod
    def open(cls, directory: Path) -> "Package":
        """Read the manifests of the package and of its block store, if there is one, but no other file.

        Raises:
            MistifyError: NOT_FOUND, there is no package; STORE_VERSION, a newer version of Mistify wrote it;
                CORRUPT_PACKAGE, with every problem in its manifest or its signature, or the manifest is not
                the signed one.
        """
        content, signature = read_signed(directory, MANIFEST)
        manifest = parse_record(directory / MANIFEST, content, Manifest, FORMAT_VERSION)
        blocks_json = None
        if BLOCKS in manifest.files:
            with suppress(MistifyError):  # `verify` and `blocks` report that it is missing
                blocks_json = read_content(directory, BLOCKS)
        return cls(directory, manifest, hashlib.sha256(content).hexdigest(), blocks_json, signature)

    @cached_property
    def blocks(self) -> BlockStore | None:
        """The block store; None if the package has none.

        Raises:
            MistifyError: NOT_FOUND, `blocks.json` is missing; STORE_VERSION, a newer version of Mistify wrote
                it; CORRUPT_PACKAGE, with every problem in it.
        """
        if BLOCKS not in self.manifest.files:
            return None
        content = read_content(self.directory, BLOCKS) if self.blocks_json is None else self.blocks_json
        return parse_record(self.directory / BLOCKS, content, BlockStore, BLOCKS_FORMAT)

    @cached_property
    def blocks_digest(self) -> str:
        """SHA-256 of `blocks.json`, in hex; empty if there is none."""
        return "" if self.blocks_json is None else hashlib.sha256(self.blocks_json).hexdigest()

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            MistifyError: CORRUPT_PACKAGE, it is missing, differs from the packaged file, or is not listed in
                the manifest.
        """
        path, expected = self.directory / name, self.manifest.files.get(name)
        if expected is None:
            problem = Problem(str(path), "not in the manifest", "a listed file", "fetch the package again")
            raise corrupt_package(self.directory, [problem])
        content = path.read_bytes() if path.is_file() else None
        actual = None if content is None else PackagedFile.of(content)
        if content is None or actual != expected:
            raise corrupt_package(self.directory, [_difference(path, actual, expected)])
        return content

    def verify(self, *, with_blocks: bool = True, skip: Collection[str] = ()) -> None:
        """Verify every file against the manifest.

        Blocks may be absent: a device downloads only the blocks that it needs.

        Args:
            with_blocks: Also verify the blocks that are present. Otherwise they are verified when they are
                used.
            skip: Names of files to skip because their readers verify them.

        Raises:
            MistifyError: CORRUPT_PACKAGE naming every file that is missing or differs.
        """
        problems = list(self._differences(with_blocks, skip))
        if problems:
            raise corrupt_package(self.directory, problems)

    def _differences(self, with_blocks: bool, skip: Collection[str]) -> Iterator[Problem]:
        blocks = self._names_of_blocks()
        for name, expected in self.manifest.files.items():
            path = self.directory / name
            if name in skip or (name in blocks and not (with_blocks and path.is_file())):
                continue
            if name == BLOCKS:
                actual = None if self.blocks_json is None else PackagedFile.of(self.blocks_json)
            else:
                actual = describe_file(path) if path.is_file() else None
            if actual != expected:
                yield _difference(path, actual, expected)

    def _names_of_blocks(self) -> frozenset[str]:
        with suppress(MistifyError):  # their manifest is damaged, which is a difference as well
            return frozenset(variant.file for variant in self.blocks.variants) if self.blocks else frozenset()
        return frozenset()


def _difference(path: Path, actual: PackagedFile | None, expected: PackagedFile) -> Problem:
    if actual is None:
        return Problem(str(path), "no such file", f"{expected.size} bytes", "fetch the package again")
    return Problem(str(path), digest_of(actual), digest_of(expected), "fetch the package again")
