"""Verification of a package: every file present is the one that was packaged."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mistify.errors import MistifyError, Problem
from mistify.package.blocks import BLOCKS, BlockStore
from mistify.package.manifest import Manifest
from mistify.package.records import corrupt_package, describe_file, digest_of


def verify(directory: Path, *, with_blocks: bool = True) -> Manifest:
    """Read a package's manifest and compare every file with it.

    Blocks may be absent: a device fetches those that it needs.

    Args:
        directory: The package.
        with_blocks: Compare the blocks that are there as well. Whoever runs a block compares it then.

    Raises:
        MistifyError: As for `Manifest.load`; CORRUPT_PACKAGE names every file that is missing or differs.
    """
    manifest = Manifest.load(directory)
    problems = list(_differences(directory, manifest, with_blocks))
    if problems:
        raise corrupt_package(directory, problems)
    return manifest


def _differences(directory: Path, manifest: Manifest, with_blocks: bool) -> Iterator[Problem]:
    blocks = _names_of_blocks(directory) if BLOCKS in manifest.files else frozenset()
    for name, expected in manifest.files.items():
        path = directory / name
        if name in blocks and not (with_blocks and path.is_file()):
            continue
        if path.is_file():
            actual = describe_file(path)
            if actual != expected:
                yield Problem(str(path), digest_of(actual), digest_of(expected), "fetch the package again")
        else:
            yield Problem(str(path), "no such file", f"{expected.size} bytes", "fetch the package again")


def _names_of_blocks(directory: Path) -> frozenset[str]:
    with suppress(MistifyError):  # there are none, or their manifest is damaged, which is a difference too
        return frozenset(variant.file for variant in BlockStore.load(directory).variants)
    return frozenset()
