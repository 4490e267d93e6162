"""Layers of a user's own: classes that plug-ins register in Keras, with handlers for those that need one.

A plug-in is a package that is installed beside Mistify, with an entry point of the group `mistify.layers`.
Its name is what the classes are registered under (the part before `>`), its value the module that does so.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Final

ENTRY_POINTS: Final = "mistify.layers"


def in_plug_in(name: str) -> bool:
    """Whether a class that is registered under a name would be a plug-in's; none of them is imported."""
    return name.partition(">")[0] in entry_points(group=ENTRY_POINTS).names


@cache
def import_layers() -> Mapping[str, str]:
    """Import all plug-ins; those that cannot be imported, by their names, and why not."""
    broken = {}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:  # what a plug-in raises is its own business
            broken[point.name] = f"{point.value}: {error!r}"
    return broken
