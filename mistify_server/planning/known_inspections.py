"""Reuse of earlier inspections of the same content, without loading models and data again."""

import asyncio
import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from mistify.machine import machine, runtime
from mistify.plugins import installed
from mistify.processors import usable_processors
from mistify_server.identity.callers import current_caller
from mistify_server.store.file_digests import FileDigests
from mistify_server.store.inspections import KeptInspections
from mistify_server.tasks.code import code_digest, files_of
from mistify_server.tasks.results import Inspection, Result
from mistify_server.tasks.tasks import InspectTask

#: Packages with code that affects inspections.
_OWN: Final = ("mistify", "executors", "mistify_server")

#: The package with Mistify's own plug-ins of devices, whose code no inspection runs.
_OF_DEVICES: Final = "mistify_client"

#: Prefix of the entry-point groups of plug-ins.
_PLUG_INS: Final = "mistify."

#: Number of inspections in memory; the others are read from the store.
_IN_MEMORY: Final = 64


#: Returns the digest of a file or directory; None if it is not known.
DigestOf: TypeAlias = Callable[[Path], str | None]


class _UnknownFileError(Exception):
    """The digest of a file is not known."""


class KnownInspections:
    """Inspects each new source once, and remembers the result.

    An inspection depends on its task, with file contents in place of file names; on the code and libraries;
    and on this machine, which measures the source. An inspection with problems is repeated, because the
    mistakes may have been corrected.

    Args:
        kept: The inspections of the store.
    """

    def __init__(self, kept: KeptInspections) -> None:
        self._kept = kept
        self._files = FileDigests()
        self._latest: OrderedDict[str, Inspection] = OrderedDict()
        self._using = Lock()
        #: By tenant and key of the task: a slow inspection delays nobody else, who could notice it.
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def result(self, task: InspectTask, inspect: Callable[[], Awaitable[Result]]) -> Result:
        """Return the known or new result of an inspect task.

        Identical tasks of a tenant wait for one in progress. Those of others are inspected as well.

        Args:
            inspect: Inspects the source.

        Raises:
            MistifyError: UNAVAILABLE, the inspection cannot be stored; or raised by `inspect`.
        """
        key = await asyncio.to_thread(self._key, task)
        if key is None:
            return await inspect()
        async with self._locks.setdefault((current_caller().tenant, key), asyncio.Lock()):
            known = await asyncio.to_thread(self._known, key)
            if known is not None:
                return known
            made = await inspect()
            # If a file has changed in the meantime, it is unknown which version was inspected.
            if isinstance(made, Inspection) and not made.problems and await self._is_still(key, task):
                await asyncio.to_thread(self._kept.keep, key, made, [*map(str, _files_in(_parts(task)))])
                self._remember(key, made)
            return made

    def lookup(self) -> Callable[[InspectTask], Inspection | None]:
        """Return a function that returns the known inspection of a task, and None for one that must be made.

        It is for many tasks at a time, which may be those of many callers: it looks at the files of equal
        tasks once, and at none that has to be read first. Thread-safe.
        """
        keys: dict[str, str | None] = {}

        def known(task: InspectTask) -> Inspection | None:
            text = task.model_dump_json()
            if text not in keys:
                keys[text] = self._key(task, self._files.known)
            key = keys[text]
            return None if key is None else self._known(key)

        return known

    def _known(self, key: str) -> Inspection | None:
        with self._using:
            known = self._latest.get(key)
        known = known or self._kept.get(key)
        if known is not None:
            self._remember(key, known)
        return known

    async def _is_still(self, key: str, task: InspectTask) -> bool:
        return await asyncio.to_thread(self._key, task) == key

    def _remember(self, key: str, inspection: Inspection) -> None:
        with self._using:
            self._latest[key] = inspection
            self._latest.move_to_end(key)
            if len(self._latest) > _IN_MEMORY:
                self._latest.popitem(last=False)

    def _key(self, task: InspectTask, digest_of: DigestOf | None = None) -> str | None:
        """Return a digest of everything that affects the result of a task; None if a file cannot be read.

        Args:
            digest_of: Returns the digest of a file or directory; None to read it if necessary.
        """
        try:
            own = _with_contents(_parts(task), digest_of or self._files.of)
            parts = own, _environment(installed()), self._plug_ins()
        except (OSError, _UnknownFileError):
            return None
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _plug_ins(self) -> list[str]:
        return [self._files.of(file) for file in _code_of_plug_ins(installed())]


def _parts(task: InspectTask) -> Any:
    return task.model_dump(mode="json")


def _with_contents(value: Any, digest_of: DigestOf) -> Any:
    """Return a part of a task with file names replaced by digests of their contents.

    Raises:
        _UnknownFileError: A digest is not known.
    """
    match value:
        case dict():
            return {key: _with_contents(part, digest_of) for key, part in value.items()}
        case list():
            return [_with_contents(part, digest_of) for part in value]
        case str() if _is_file(value):
            digest = digest_of(Path(value))
            if digest is None:
                raise _UnknownFileError
            return f"content {digest}{Path(value).suffix}"
    return value


def _files_in(value: Any) -> Iterator[Path]:
    """Yield the files and directories named in a part of a task."""
    match value:
        case dict():
            for part in value.values():
                yield from _files_in(part)
        case list():
            for part in value:
                yield from _files_in(part)
        case str() if _is_file(value):
            yield Path(value)


def _is_file(value: str) -> bool:
    """Check whether a text is a file or directory name that the server has resolved."""
    return os.path.isabs(value) and "\n" not in value and os.path.exists(value)


@lru_cache(maxsize=2)
def _environment(_installed: object) -> str:
    """Return a digest of the code, the libraries and the machine."""
    libraries = sorted(f"{library.name} {library.version}" for library in distributions())
    parts = [*libraries, machine(), str(usable_processors()), runtime(), code_digest(_OWN)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@lru_cache(maxsize=2)
def _code_of_plug_ins(_installed: object) -> tuple[Path, ...]:
    """Return the files with the code of all third-party plug-ins."""
    all_points = chain.from_iterable(library.entry_points for library in distributions())
    points = (point for point in all_points if point.group.startswith(_PLUG_INS))
    packages = sorted({point.module.partition(".")[0] for point in points} - {*_OWN, _OF_DEVICES})
    return tuple(file for package in packages for file in files_of(package))
