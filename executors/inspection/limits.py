"""Limits on the size of a model file and on its declarations."""

from dataclasses import dataclass

MIB = 2**20
GIB = 2**30


@dataclass(frozen=True)
class Limits:
    """Size limits for a source model, about ten times the size of the largest model in `keras.applications`.

    Attributes:
        total_bytes: All files of a model together, also after unpacking.
        config_bytes: The text of its configuration.
        config_depth: Nesting depth of objects and lists in the configuration.
        entries: Members of an archive, objects in an HDF5 file, or files in a directory.
        weights: Weights declared by the configuration.
        expansion: Unpacked bytes per packed byte, for members larger than a mebibyte.
    """

    total_bytes: int = 4 * GIB
    config_bytes: int = 8 * MIB
    config_depth: int = 100
    entries: int = 20_000
    weights: int = 10**9
    expansion: int = 100


#: The default limits.
LIMITS = Limits()
