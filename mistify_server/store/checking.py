"""The check of a store: whether its database and all of its files are intact."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from mistify.errors import ErrorCode, MistifyError
from mistify.wording import listed
from mistify_server.store.artifacts import pieces_of
from mistify_server.store.directory import Store, open_store
from mistify_server.store.package_signatures import signature_faults
from mistify_server.store.upload_directories import UPLOADS, directory_of, tenants_with_uploads
from mistify_server.store.uploads import uploaded_files


class CheckedStore(NamedTuple):
    """The result of a check.

    Attributes:
        files: Number of files read.
        size: Their total size in bytes.
        problems: The damaged and missing files, each with its users and how to replace it.
    """

    files: int
    size: int
    problems: tuple[str, ...]


def check_store(directory: Path) -> CheckedStore:
    """Read all of a store, also of a running server's and in a bucket, and return what is damaged.

    Raises:
        MistifyError: STORE_VERSION or UNAVAILABLE, the store cannot be opened, or its bucket cannot be read.
    """
    with open_store(directory) as store:
        # Read the references first: files that are put later are not missing.
        users = _users(store)
        problems = [f"the database: {fault}; restore a backup" for fault in store.jobs.faults()]
        problems += signature_faults(store)
        artifacts = _checked(store.artifacts.names(), store.artifacts.content)
        states = {name: "damaged" for name, file in artifacts.items() if file.damaged}
        # Files of jobs that were removed meanwhile are not missing.
        missing = users.keys() - artifacts.keys()
        states |= dict.fromkeys(missing & _users(store).keys() if missing else missing, "missing")
    problems += [
        f"the artifact {name} is {states[name]}; {_use(users.get(name, ()))}" for name in sorted(states)
    ]
    uploads = [
        _checked_uploads(directory_of(directory / UPLOADS, tenant))
        for tenant in tenants_with_uploads(directory / UPLOADS)
    ]
    problems += [
        f"the upload {name} is damaged; `mistify port` with its config uploads it again"
        for of_tenant in uploads
        for name, file in of_tenant.items()
        if file.damaged
    ]
    read = [*artifacts.values(), *chain.from_iterable(of_tenant.values() for of_tenant in uploads)]
    return CheckedStore(len(read), sum(file.size for file in read), tuple(problems))


class _CheckedFile(NamedTuple):
    size: int
    damaged: bool


def _checked(names: Iterable[str], content: Callable[[str], Iterator[bytes]]) -> dict[str, _CheckedFile]:
    """Read files whose names begin with the digests of their contents; those removed since are left out.

    A file that cannot be read, for example from a failing disk, is damaged.

    Args:
        content: Returns the content of a file.
    """
    checked = {}
    for name in names:
        size, digest, readable = 0, sha256(), True
        try:
            for piece in content(name):
                size += len(piece)
                digest.update(piece)
        except FileNotFoundError:
            continue
        except MistifyError as error:
            if error.code is ErrorCode.NOT_FOUND:
                continue
            if error.code is not ErrorCode.CORRUPT_PACKAGE:
                raise
            readable = False
        except OSError:
            readable = False
        checked[name] = _CheckedFile(size, not readable or digest.hexdigest() != name.partition(".")[0])
    return checked


def _checked_uploads(directory: Path) -> dict[str, _CheckedFile]:
    """Read the uploads of a tenant as in `_checked`."""
    files = {path.name: path for path in uploaded_files(directory)}
    return _checked(files, lambda name: pieces_of(files[name]))


def _users(store: Store) -> dict[str, list[str]]:
    """Return what uses each artifact."""
    users = defaultdict(list)
    for reference in store.jobs.references():
        users[reference.artifact].append(reference.user)
    return users


def _use(users: Sequence[str]) -> str:
    """Return what uses an artifact, and how to replace it."""
    if not users:
        return "nothing uses it, and removing jobs removes it"
    return (
        f"it is used by {listed(users)}; port the config again into another directory, or add the model "
        "again, which replaces it"
    )
