"""Stitched networks on disk, each made of the blocks of a subnet."""

from collections.abc import Sequence
from typing import Final

from mistify.package.blocks import BlockVariant
from mistify_client.assembly.made_networks import key_of

#: In the state directory of a package.
STITCHED: Final = "stitched"

#: The program that stitches blocks of a package: its arguments are the package, the directory of stitched
#: networks, `--weights` with the directory of mapped weights if the network maps them, and the files of the
#: blocks.
STITCHER: Final = "mistify_client.assembly.stitching"

#: Version of the stitching. Changes to it need a new number, so that old files are not used.
_FORMAT: Final = 1


def stitched_key(blocks: Sequence[BlockVariant]) -> str:
    """Return the key of the network of blocks among made networks."""
    return key_of(str(_FORMAT), *(block.content.sha256 for block in blocks))
