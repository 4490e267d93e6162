"""Jobs that a server takes from the store in order to run them."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from tenacity import AsyncRetrying

from mistify.jobs.job import Job
from mistify_server.identity.callers import CallerId
from mistify_server.jobs.store_writer import until_available
from mistify_server.store.directory import Store
from mistify_server.store.leases import JobLease
from mistify_server.store.plans import BatchState

_log = logging.getLogger(__name__)


class TakenJob(NamedTuple):
    """A job in its state in the store, the server's lease of it, and who submitted it."""

    lease: JobLease
    job: Job
    states: Sequence[BatchState]
    submitter: CallerId


async def taken_job(store: Store, job_id: str) -> TakenJob | None:
    """Take a job as soon as the store is available, and return it; None if it has ended.

    Raises:
        MistifyError: STORE_VERSION, another version of Mistify has written it; it stays taken.
    """
    async for attempt in attempts():
        with attempt:
            lease = await asyncio.to_thread(store.leases.take, job_id)
    if lease is None:
        return None
    async for attempt in attempts():
        with attempt:
            job, states = await asyncio.to_thread(store.jobs.with_batches, job_id)
            submitter = await asyncio.to_thread(store.jobs.submitter, job_id)
    return TakenJob(lease, job, states, submitter)


def attempts() -> AsyncRetrying:
    """Return attempts of a job to read the store, which it repeats until that succeeds."""
    return until_available(partial(_log.warning, "the job is waiting: %s"))
