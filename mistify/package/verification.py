"""Verification of a package: every file present is the one that was packaged."""

from pathlib import Path

from mistify.package.manifest import Manifest
from mistify.package.opened import Package


def verify(directory: Path, *, with_blocks: bool = True) -> Manifest:
    """Read a package's manifest and compare every file with it.

    Blocks may be absent: a device fetches the blocks that it needs.

    Args:
        directory: The package.
        with_blocks: Compare the blocks that are there as well. Whoever runs a block compares it then.

    Raises:
        MistifyError: As for `Package.open` and `Package.verify`.
    """
    package = Package.open(directory)
    package.verify(with_blocks=with_blocks)
    return package.manifest
