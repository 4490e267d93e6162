"""Suffixes of files, which cameras and other systems also write in capitals."""

from pathlib import PurePath


def suffix_of(path: PurePath | str) -> str:
    """Return the last suffix of a file's name in lower case, with its dot; empty if it has none."""
    return PurePath(path).suffix.lower()
