"""What stores have."""

from mistify.jobs.job import Job
from mistify_server.store.directory import Store


def jobs_in(store: Store, most: int = 99) -> list[Job]:
    """The jobs of a store with all their goals, the newest first."""
    return [part.job for part in store.jobs.page(most, 9_999)[0]]
