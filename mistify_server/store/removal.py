"""Removal of jobs from a store, and of the files that nothing refers to any more."""

from collections.abc import Iterable
from math import inf
from pathlib import Path

from mistify_server.store.artifacts import digest_of
from mistify_server.store.directory import Store, open_store, serving
from mistify_server.store.preparations import Preparations


def remove_jobs(directory: Path, job_ids: Iterable[str]) -> int:
    """Remove jobs that have ended from a store that no server uses, then every file that nothing refers to.

    The next removal, even one of no jobs, completes an interrupted one.

    Args:
        directory: The store's directory.

    Returns:
        Number of bytes freed.

    Raises:
        MistifyError: UNAVAILABLE, a server uses the store, or a model is being added to it; NOT_FOUND, there
            is no such job; CONFLICT, it has not ended, or a group tunes its packages. Jobs before that one
            are removed.
    """
    with serving(directory), open_store(directory) as store, store.artifacts.removing():
        for job_id in job_ids:
            store.jobs.remove(job_id)
        return _remove_files(store, inf) + store.jobs.shrink()


def remove_job(store: Store, job_id: str, busy_since: float) -> int:
    """Remove a job that has ended from the store of a running server, then the files that nothing refers to.

    Files that a task in progress may have made, which nothing refers to yet, stay for a later removal.

    Args:
        store: The store of the running server.
        busy_since: Start of the oldest step of a job, or task, in progress, in seconds since 1970; now if
            there is none.

    Returns:
        Number of bytes freed.

    Raises:
        MistifyError: As for `remove_jobs`.
    """
    with store.artifacts.removing():
        store.jobs.remove(job_id)
        return _remove_files(store, busy_since) + store.jobs.shrink()


def _remove_files(store: Store, before: float) -> int:
    """Remove unreferenced files that were put before a time, and return their bytes.

    A job that has not ended may still continue an unfinished preparation.
    """
    names = store.artifacts.names()
    referenced = store.jobs.referenced()
    all_ended = not store.jobs.unfinished()
    freed = Preparations(store.artifacts).remove_unused(referenced, before, with_parts=all_ended)
    freed += sum(store.artifacts.remove(name, before) for name in names if digest_of(name) not in referenced)
    return freed + store.inspections.remove_unneeded()
