"""Removal of jobs from a store that no server uses, and of the files that nothing refers to any more."""

from collections.abc import Iterable
from pathlib import Path

from mistify_server.store.artifacts import digest_of
from mistify_server.store.directory import open_store, serving


def remove_jobs(directory: Path, job_ids: Iterable[str]) -> int:
    """Remove jobs that have ended, then every artifact that nothing in the store refers to.

    The next removal, also one of no jobs, completes one that was interrupted.

    Args:
        directory: Of the store.
        job_ids: Of the jobs.

    Returns:
        Bytes that became free.

    Raises:
        MistifyError: UNAVAILABLE, a server uses the store, or a model is being added to it; NOT_FOUND, there
            is no such job; CONFLICT, it has not ended, or a group tunes its packages. Jobs before that one
            are removed.
    """
    with serving(directory), open_store(directory) as store, store.artifacts.removing():
        for job_id in job_ids:
            store.jobs.remove(job_id)
        mentioned = store.jobs.mentioned()
        freed = 0
        for name in store.artifacts.names():
            if digest_of(name) not in mentioned:
                freed += store.artifacts.size(name)
                store.artifacts.remove(name)
    return freed
