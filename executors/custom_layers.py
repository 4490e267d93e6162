"""Custom layers: classes that plug-ins register in Keras, with handlers if needed.

A plug-in is an installed package with an entry point in the group `mistify.layers`. The entry point's name is
the part of the registered class names before `>`; its value is the module that registers them.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from mistify.plugins import UnusablePlugInError, load_plug_in, plug_ins

ENTRY_POINTS: Final = "mistify.layers"


def in_plug_in(name: str) -> bool:
    """Check whether a class registered under a name would belong to a plug-in; imports none of them."""
    return name.partition(">")[0] in plug_ins(ENTRY_POINTS)


@cache
def import_layers() -> Mapping[str, str]:
    """Import all plug-ins; return the errors of those that cannot be imported, by name."""
    broken = {}
    for name, point in plug_ins(ENTRY_POINTS).items():
        try:
            load_plug_in(point)
        except UnusablePlugInError as error:
            broken[name] = str(error)
    return broken
