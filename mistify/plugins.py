"""Plug-ins: packages installed beside Mistify, whose entry points name their additions."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

T = TypeVar("T")


class UnusablePlugInError(Exception):
    """The error of a plug-in that cannot be used; the text says where it is and why."""


def plug_ins(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name, in their order; none is imported."""
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda point: point.name)}


def load_plug_in(point: EntryPoint) -> Any:
    """Load the object that an entry point names.

    Raises:
        UnusablePlugInError: It cannot be imported, or lacks the object.
    """
    try:
        return point.load()
    except Exception as error:  # what a plug-in raises is its own business
        raise UnusablePlugInError(f"{point.value}: {error!r}") from error


def load_class(point: EntryPoint, base: type[T]) -> type[T]:
    """Return the class that an entry point names.

    Raises:
        UnusablePlugInError: It cannot be imported, or is no class derived from `base`.
    """
    loaded = load_plug_in(point)
    if isinstance(loaded, type) and issubclass(loaded, base):
        return loaded
    raise UnusablePlugInError(f"{point.value}: is {loaded!r}, no {base.__module__}.{base.__qualname__}")
