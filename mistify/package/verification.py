"""Verification of a package: every present file is identical to the packaged one."""

from pathlib import Path

from mistify.package.manifest import Manifest
from mistify.package.opened import Package


def verify(directory: Path, *, with_blocks: bool = True) -> Manifest:
    """Read a package's manifest and verify every file against it.

    Blocks may be absent: a device downloads only the blocks that it needs.

    Args:
        directory: The package.
        with_blocks: Also verify the blocks that are present. Otherwise they are verified when they are used.

    Raises:
        MistifyError: NOT_FOUND, there is no package; STORE_VERSION, a newer version of Mistify wrote it;
            CORRUPT_PACKAGE, with every problem in its manifest or its signature, or naming every file that is
            missing or differs.
    """
    package = Package.open(directory)
    package.verify(with_blocks=with_blocks)
    return package.manifest
