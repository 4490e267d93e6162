"""Backup of a store, also while a server uses it."""

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from mistify.errors import ErrorCode, MistifyError
from mistify.files.writing import replacing
from mistify_server.store.artifacts import Artifacts, artifacts_of, digest_of, pieces_of, sha256_of, writing
from mistify_server.store.directory import (
    AUDIT,
    WEIGHTS,
    backend_of,
    has_database,
    open_store,
    tidy_files,
)
from mistify_server.store.lock import LOGS, locked_store
from mistify_server.store.objects.binding import binding_of, opened_artifacts
from mistify_server.store.sql.backend import BUSY_SECONDS, Backend
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.jobs import SqlJobStore
from mistify_server.store.upload_directories import UPLOADS, directory_of, tenants_with_uploads
from mistify_server.store.uploads import NAMED, SENDERS, uploaded_files

#: File that marks a directory as a backup, so that no other store is overwritten.
_MARK: Final = "backup"

#: Attempts to copy a database with all its files while jobs are removed from the store.
_ATTEMPTS: Final = 5


class Backup(NamedTuple):
    """A backup: number and total size in bytes of the copied files, and what could not be copied.

    Attributes:
        damaged: The names of artifacts that are damaged or missing in the store.
        damaged_uploads: The digests of uploads that are damaged in the store.
        bucket: The address of the bucket from which artifacts were copied, if they are not in the store.
        dump_command: The command that backs up the database, if it is not among the copied files.
    """

    files: int
    size: int
    damaged: tuple[str, ...]
    damaged_uploads: tuple[str, ...]
    bucket: str | None
    dump_command: str | None


def back_up(directory: Path, target: Path) -> Backup:
    """Copy a store into another directory, which is then a store with the same content.

    A database in PostgreSQL is not copied; its dump, made before the files are copied, belongs to the backup.
    Artifacts in a bucket are: the copy has them in its directory, and does not know the bucket. Files that an
    earlier backup has copied into the directory are not copied again. Damaged files, inspections and the logs
    of workers are left out.

    Args:
        directory: The store; a server may be using it.
        target: The directory of the backup: new, empty or an earlier backup.

    Raises:
        MistifyError: CONFLICT, the target contains something else; UNAVAILABLE, a server uses the target, or
            its disk is full; UNAVAILABLE or STORE_VERSION, the store cannot be read.
    """
    with open_store(directory) as store, writing(target):  # refuse a directory that is not a store
        _check_target(directory, target)
    with locked_store(target), writing(target):
        tidy_files(target)
        (target / _MARK).touch()
        sizes: list[int] = []
        damaged: set[str] | None = None
        for _ in range(_ATTEMPTS):
            before = damaged
            copied, damaged = _copy_database_with_files(directory, target)
            sizes += copied
            if not damaged or damaged == before:  # otherwise a job may have been removed meanwhile
                break
        uploads, copies = directory / UPLOADS, target / UPLOADS
        damaged_uploads: set[str] = set()
        for tenant in tenants_with_uploads(uploads):  # after the jobs that refer to them
            copied, faults = _copy_uploads(directory_of(uploads, tenant), directory_of(copies, tenant))
            sizes += copied
            damaged_uploads.update(faults)
        with suppress(FileNotFoundError):
            shutil.copy2(directory / LOGS / AUDIT, target / LOGS / AUDIT)
        store.signing_keys.copy_to(target)  # last, so that it has the keys of all copied packages
    command = backend_of(directory).dump_command()
    binding = binding_of(directory)
    bucket = None if binding is None else binding.address
    faulty = tuple(sorted(damaged or ())), tuple(sorted(damaged_uploads))
    return Backup(len(sizes), sum(sizes), *faulty, bucket, command)


def make_own_store(directory: Path) -> None:
    """Make a backup a store of its own, for example for a server: later backups do not overwrite it."""
    (directory / _MARK).unlink(missing_ok=True)


def _check_target(directory: Path, target: Path) -> None:
    """Raise an error if a directory contains anything but an earlier backup."""
    if target.exists() and os.path.samefile(directory, target):
        raise MistifyError(ErrorCode.CONFLICT, f"{target} is the store itself; use another directory")
    if target.exists() and any(target.iterdir()) and not (target / _MARK).exists():
        content = "a store of its own" if has_database(target) else "other files"
        raise MistifyError(
            ErrorCode.CONFLICT,
            f"{target} contains {content}; use a new directory, or that of an earlier backup which no server "
            "has used",
        )


def _copy_database_with_files(directory: Path, target: Path) -> tuple[list[int], set[str]]:
    """Copy the database and all files that its rows refer to.

    Returns:
        The sizes of new files in bytes, and the artifacts that rows refer to but that were not copied.
    """
    sizes: list[int] = []
    with backend_of(directory).snapshot(target) as copied, _jobs(copied) as jobs:
        referenced = jobs.referenced_digests()
        sizes += _copy_artifacts(opened_artifacts(directory), artifacts_of(target), referenced)
        sizes += _copy_artifacts(Artifacts(directory / WEIGHTS), Artifacts(target / WEIGHTS), referenced)
        used = {reference.artifact for reference in jobs.references()}
    artifacts = artifacts_of(target)
    return sizes, {name for name in used if not artifacts.place(name).exists()}


def _copy_artifacts(source: Artifacts, target: Artifacts, digests: Collection[str]) -> Iterator[int]:
    """Copy intact artifacts with these digests unless the target has them; yield their sizes in bytes."""
    for name in source.names():
        if digest_of(name) in digests and not target.place(name).exists():
            try:
                yield target.restore(name, source.content(name)).stat().st_size
            except MistifyError as error:  # damaged, or removed meanwhile
                if error.code not in (ErrorCode.CORRUPT_PACKAGE, ErrorCode.NOT_FOUND):
                    raise


def _copy_uploads(source: Path, target: Path) -> tuple[list[int], list[str]]:
    """Copy a tenant's intact uploads, their senders and names in configs.

    Returns:
        The sizes of new files in bytes, and the uploads that are damaged and that the target does not have.
    """
    sizes: list[int] = []
    damaged: list[str] = []
    places: dict[int, Path] = {}
    for path in uploaded_files(source):
        place = target / path.relative_to(source)
        with suppress(FileNotFoundError):
            inode = path.stat().st_ino
            if not place.exists():
                try:
                    sizes.append(_copied(path, place, path.name))
                except _DamagedError:
                    damaged.append(path.name)
                    continue
            places[inode] = place
    for path in source.glob(f"{SENDERS}/*/*"):
        if path.name not in damaged:
            sender = target / path.relative_to(source)
            sender.parent.mkdir(parents=True, exist_ok=True)
            sender.touch()
    for name in source.glob(f"{NAMED}/[!.]*"):
        with suppress(FileNotFoundError):
            sizes += _copy_name(name, target / name.relative_to(source), places)
    return sizes, damaged


def _copy_name(source: Path, target: Path, places: Mapping[int, Path]) -> list[int]:
    """Copy the names of an upload as links, unless a file is damaged: the server then names it anew.

    Args:
        places: Inode of each intact upload -> its copy.

    Returns:
        The sizes in bytes of files that need a copy of their own: those that had too many links.
    """
    paths = [path for path in source.rglob("*") if path.is_file()]
    copies = {path: places.get(path.stat().st_ino) for path in paths}
    digests = {path: sha256_of(path) for path, copied in copies.items() if copied is None}
    if not set(digests.values()) <= {place.name for place in places.values()}:
        return []
    sizes = []
    for path, copied in copies.items():
        link = target / path.relative_to(source)
        if link.exists():
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        if copied is None:
            sizes.append(_copied(path, link, digests[path]))
        else:
            link.hardlink_to(copied)
    return sizes


class _DamagedError(Exception):
    """A file does not have the content of its digest, or cannot be read."""


def _copied(path: Path, place: Path, digest: str) -> int:
    """Copy a file, and return its size in bytes; the copy appears once it is complete.

    Raises:
        _DamagedError: Its SHA-256 (hex) is another one.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    actual = sha256()
    with replacing(place, durable=True) as file:
        for piece in _content(path):
            actual.update(piece)
            file.write(piece)
        if actual.hexdigest() != digest:
            raise _DamagedError
    return place.stat().st_size


def _content(path: Path) -> Iterator[bytes]:
    """Yield the content of a file in pieces, as `pieces_of` does; raise an error of its own for reads."""
    try:
        yield from pieces_of(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _DamagedError from error


@contextmanager
def _jobs(backend: Backend) -> Iterator[SqlJobStore]:
    """Yield the jobs in a database."""
    database = Database.open(backend, BUSY_SECONDS)
    try:
        yield SqlJobStore(database)
    finally:
        database.close()
