"""What a store of jobs is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from mistify.jobs.job import Job, JobEvent
from mistify_server.store.changes import Addition, Change, Submission
from mistify_server.store.edges import EdgeRecord
from mistify_server.store.plans import BatchState


class JobStore(ABC):
    """Keeps jobs, their checkpoints and their events.

    Every method is one transaction; what a writing method has done when it returns survives a crash of
    the machine. Calls take milliseconds. All of them raise `MistifyError` NOT_FOUND where there is no
    such job, and UNAVAILABLE where the disk is full, read-only or broken.
    """

    @abstractmethod
    def create(self, submission: Submission) -> Job:
        """Keep a new job and its first event; the job already kept where the idempotency key is known.

        Raises:
            MistifyError: CONFLICT, the key is known with another config text.
        """

    @abstractmethod
    def find(self, idempotency_key: str, config_text: str) -> Job | None:
        """The job that was submitted under a key, None if there is none.

        Raises:
            MistifyError: CONFLICT, the key is known with another config text.
        """

    @abstractmethod
    def add_goals(self, job_id: str, addition: Addition) -> None:
        """Keep goals that a job does not have yet; a job that has ended is queued again.

        Events tell of every goal, and of the job that is queued.
        """

    @abstractmethod
    def added(self, job_id: str, idempotency_key: str, config_text: str) -> bool:
        """Whether goals were added to a job under a key; keys of different jobs have nothing in common.

        Raises:
            MistifyError: CONFLICT, the key is known with another config text.
        """

    @abstractmethod
    def job(self, job_id: str) -> Job:
        """A job as it stands."""

    @abstractmethod
    def ended(self, job_id: str) -> bool:
        """Whether a job has ended."""

    @abstractmethod
    def jobs(self, limit: int) -> list[Job]:
        """Up to `limit` jobs, the newest first."""

    @abstractmethod
    def page(self, limit: int, most_goals: int, before: str | None = None) -> tuple[list[Job], bool]:
        """Some jobs, the newest first, and whether there are older ones. No others are read.

        Args:
            limit: the most jobs.
            most_goals: that they have together, unless the first alone has more.
            before: only jobs that were submitted before this one.
        """

    @abstractmethod
    def unfinished(self) -> list[str]:
        """The ids of the jobs that have not ended, the oldest first."""

    @abstractmethod
    def batches(self, job_id: str) -> list[BatchState]:
        """A job's collective batches with what has been made of them."""

    @abstractmethod
    def record(
        self, job_id: str, changes: Iterable[Change], seconds: float, spent: Mapping[str, float]
    ) -> None:
        """Make changes and tell of them in events, all or none.

        Args:
            job_id: of a job that has not ended.
            changes: in the order in which their events are numbered.
            seconds: of work on the job so far.
            spent: seconds by activity so far, summed over all tasks of the job.
        """

    @abstractmethod
    def edges(self, subject: str, kind: str, limit: int) -> list[EdgeRecord]:
        """Up to `limit` of the latest edges of all jobs, the oldest first.

        Those of the same model and data (`subject`) come before others of that kind of network.
        """

    @abstractmethod
    def events(self, job_id: str, after: int, limit: int) -> list[JobEvent]:
        """Up to `limit` events numbered above `after`, in order."""

    @abstractmethod
    def remove(self, job_id: str) -> None:
        """Forget a job that has ended, with all that was made of it and what its edges have taught.

        Raises:
            MistifyError: CONFLICT, it has not ended, or a group tunes its packages.
        """

    @abstractmethod
    def mentioned(self) -> set[str]:
        """All SHA-256 digests that stand anywhere in the store: those of files that are still needed."""
