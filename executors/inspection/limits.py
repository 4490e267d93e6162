"""Limits on the size of a model file, and on its declarations."""

from dataclasses import dataclass

MIB = 2**20
GIB = 2**30


@dataclass(frozen=True)
class Limits:
    """The most that a source model may take; the largest of `keras.applications` takes a tenth.

    Attributes:
        total_bytes: All files of a model together, also once they are unpacked.
        config_bytes: The text of its configuration.
        config_depth: Objects and lists of the configuration in each other.
        entries: Members of an archive, objects of an HDF5 file, files of a directory.
        weights: Weights that the configuration declares.
        expansion: Unpacked bytes per packed byte, of whatever is larger than a mebibyte.
    """

    total_bytes: int = 4 * GIB
    config_bytes: int = 8 * MIB
    config_depth: int = 100
    entries: int = 20_000
    weights: int = 10**9
    expansion: int = 100


#: What is checked wherever nothing else is said.
LIMITS = Limits()
