"""Plug-ins: installed packages whose entry points name their additions to Mistify."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: The distribution with Mistify's own entry points.
_OWN: Final = "mistify-porting"


class UnusablePlugInError(Exception):
    """An unusable plug-in; the text says where it is and why it cannot be used."""


def plug_ins(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name, in order, without importing them."""
    return _entry_points(group, installed())


def installed() -> tuple[tuple[str, int], ...]:
    """Return a value that changes when a package is installed or removed, or when `sys.path` changes."""
    stamps = []
    for directory in sys.path:
        with suppress(OSError):
            stamps.append((directory, os.stat(directory or ".").st_mtime_ns))
    return tuple(stamps)


@lru_cache(maxsize=64)
def _entry_points(group: str, _installed: object) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group; this reads the metadata of all packages."""
    # The last entry point of a name is used: plug-ins cannot replace Mistify's own.
    points = sorted(entry_points(group=group), key=lambda point: (point.name, _is_own(point)))
    return MappingProxyType({point.name: point for point in points})


def _is_own(point: EntryPoint) -> bool:
    return point.dist is not None and point.dist.name == _OWN


def check_plug_in(point: EntryPoint) -> None:
    """Check that an entry point names an existing object, as far as possible without importing it.

    Raises:
        UnusablePlugInError: There is no such module, it is not Python, or it does not define the name.
    """
    try:
        spec = _spec(point.module)
        loader = spec.loader if spec is not None else None
        code = loader.get_code(point.module) if isinstance(loader, SourceFileLoader) else None
    except SyntaxError as error:
        raise UnusablePlugInError(f"{point.value}: {error!r}") from error
    if spec is None:
        raise UnusablePlugInError(f"{point.value}: there is no module {point.module}")
    name = point.attr.partition(".")[0]
    if code is not None and name not in code.co_names and ("*",) not in code.co_consts:
        raise UnusablePlugInError(f"{point.value}: {point.module} has no {name}")


def _spec(module: str) -> ModuleSpec | None:
    """Return the spec of a module without importing its parent packages."""
    first, *others = module.split(".")
    spec, path = find_spec(first), first
    for part in others:
        path = f"{path}.{part}"
        spec = PathFinder.find_spec(path, spec.submodule_search_locations) if spec is not None else None
    return spec


def load_plug_in(point: EntryPoint) -> Any:
    """Load the object that an entry point names.

    Raises:
        UnusablePlugInError: It cannot be imported, or lacks the object.
    """
    try:
        return point.load()
    except Exception as error:  # a plug-in may raise anything
        raise UnusablePlugInError(f"{point.value}: {error!r}") from error


def load_class(point: EntryPoint, base: type[T]) -> type[T]:
    """Return the class that an entry point names.

    Raises:
        UnusablePlugInError: It cannot be imported, or is not a class derived from `base`.
    """
    loaded = load_plug_in(point)
    if isinstance(loaded, type) and issubclass(loaded, base):
        return loaded
    raise _unexpected(point, loaded, base)


def load_instance(point: EntryPoint, expected: type[T]) -> T:
    """Return the instance of a class that an entry point names.

    Raises:
        UnusablePlugInError: It cannot be imported, or is not an instance of the class.
    """
    loaded = load_plug_in(point)
    if isinstance(loaded, expected):
        return loaded
    raise _unexpected(point, loaded, expected)


def _unexpected(point: EntryPoint, loaded: object, expected: type) -> UnusablePlugInError:
    name = f"{expected.__module__}.{expected.__qualname__}"
    return UnusablePlugInError(f"{point.value}: is {loaded!r}, no {name}")
