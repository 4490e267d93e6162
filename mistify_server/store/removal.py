"""Removal of jobs and unreferenced files from a store."""

from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.artifacts import digest_of
from mistify_server.store.directory import Store, open_store, serving
from mistify_server.store.preparations import Preparations


def remove_jobs(directory: Path, job_ids: Iterable[str]) -> int:
    """Remove finished jobs from a store without a running server, then all unreferenced files.

    The next call, even without jobs, completes an interrupted removal.

    Args:
        directory: The store's directory.

    Returns:
        Number of bytes freed.

    Raises:
        MistifyError: UNAVAILABLE, a server uses the store, or a model is being added to it; NOT_FOUND, there
            is no such job; CONFLICT, a job is unfinished or a group tunes its packages. Jobs before the
            invalid one are removed.
    """
    with serving(directory), open_store(directory) as store, store.artifacts.removing():
        for job_id in job_ids:
            store.jobs.remove(job_id)
        return _remove_files(store, inf) + store.jobs.shrink()


#: Errors of jobs that a removal keeps.
_KEPT: Final = (ErrorCode.NOT_FOUND, ErrorCode.CONFLICT, ErrorCode.STORE_VERSION)


class Removal(NamedTuple):
    """The bytes that a removal has freed, and the jobs that it has kept, with the reasons."""

    freed_bytes: int
    kept: Mapping[str, MistifyError]


def remove_ended(
    store: Store, job_ids: Iterable[str], busy_since: float, hidden_before_ms: int | None = None
) -> Removal:
    """Remove finished jobs from the store of a running server, then all unreferenced files at once.

    Unreferenced files that may belong to a task in progress are left for a later removal. Jobs are kept if
    there is no such job (NOT_FOUND), only a newer version can read them (STORE_VERSION), or (CONFLICT) they
    are unfinished, a group tunes their packages, or they were restored.

    Args:
        store: The store of the running server.
        busy_since: Start of the oldest step or task in progress, in seconds since 1970; now if there is none.
        hidden_before_ms: See `JobStore.remove`.

    Raises:
        MistifyError: UNAVAILABLE, a model is being added to the store.
    """
    kept = {}
    with store.artifacts.removing():
        for job_id in job_ids:
            try:
                store.jobs.remove(job_id, hidden_before_ms)
            except MistifyError as error:
                if error.code not in _KEPT:
                    raise
                kept[job_id] = error
        return Removal(_remove_files(store, busy_since) + store.jobs.shrink(), kept)


def _remove_files(store: Store, before: float) -> int:
    """Remove unreferenced files older than a time, and return the number of bytes freed.

    Unfinished preparations are kept while an unfinished job may continue them.
    """
    names = store.artifacts.names()
    referenced = store.jobs.referenced_digests()
    all_ended = store.jobs.all_ended()
    freed = Preparations(store.artifacts).remove_unused(referenced, before, with_parts=all_ended)
    store.artifacts.remove_shared(referenced, before)
    unused = [name for name in names if digest_of(name) not in referenced]
    freed += store.artifacts.remove_all(unused, before)
    return freed + store.inspections.remove_unneeded()
