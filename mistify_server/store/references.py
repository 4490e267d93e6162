"""References to files of a store."""

from typing import NamedTuple


class Reference(NamedTuple):
    """A use of an artifact: what uses it, for people, and the artifact's name."""

    user: str
    artifact: str
