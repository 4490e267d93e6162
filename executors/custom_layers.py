"""Layers of a user's own: classes that plug-ins register in Keras, with handlers where these are needed.

A plug-in is a package that is installed beside Mistify, with an entry point of the group `mistify.layers`.
The entry point's name is the part before `>` of the registered class names, its value the module that
registers them.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from mistify.plugins import UnusablePlugInError, load_plug_in, plug_ins

ENTRY_POINTS: Final = "mistify.layers"


def in_plug_in(name: str) -> bool:
    """Check whether a class registered under a name would be a plug-in's; none of them is imported."""
    return name.partition(">")[0] in plug_ins(ENTRY_POINTS)


@cache
def import_layers() -> Mapping[str, str]:
    """Import all plug-ins; return the reasons why some cannot be imported, by their names."""
    broken = {}
    for name, point in plug_ins(ENTRY_POINTS).items():
        try:
            load_plug_in(point)
        except UnusablePlugInError as error:
            broken[name] = str(error)
    return broken
