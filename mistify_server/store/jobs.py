"""Interface of the store of jobs."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import Goal, GoalState, Job, JobEvent, JobState
from mistify.jobs.part import GoalSelection, JobPart
from mistify_server.store.changes import Addition, Change, Submission
from mistify_server.store.edges import EdgeRecord
from mistify_server.store.plans import BatchState


class JobStore(ABC):
    """Store of jobs, their checkpoints and their events.

    Every method is one transaction. Once a writing method has returned, its changes survive a crash of the
    machine. Calls take milliseconds, except for those that read or write all goals of a job with thousands.
    All of them raise `MistifyError` NOT_FOUND where there is no such job, and UNAVAILABLE where the disk is
    full, read-only or broken.
    """

    @abstractmethod
    def create(self, submission: Submission) -> Job:
        """Keep a new job and its first event, or return the job that already has the idempotency key.

        Raises:
            MistifyError: CONFLICT, the key is known with another config text.
        """

    @abstractmethod
    def find(self, idempotency_key: str, config_text: str) -> Job | None:
        """Return the job that was submitted under a key, None if there is none.

        Raises:
            MistifyError: CONFLICT, the key is known with another config text.
        """

    @abstractmethod
    def add_goals(self, job_id: str, addition: Addition) -> None:
        """Keep goals that a job does not have yet; a job that has ended is queued again.

        Every goal gets an event, and so does the job if it is queued.
        """

    @abstractmethod
    def added(self, job_id: str, idempotency_key: str, config_text: str) -> bool:
        """Check whether goals were added to a job under a key; each job has keys of its own.

        Raises:
            MistifyError: CONFLICT, the key is known with another config text.
        """

    @abstractmethod
    def job(self, job_id: str) -> Job:
        """Return a job in its current state."""

    @abstractmethod
    def ended(self, job_id: str) -> bool:
        """Check whether a job has ended."""

    @abstractmethod
    def part(self, job_id: str, selection: GoalSelection) -> JobPart:
        """Return a job in its current state with some of its goals. No others are read.

        Raises:
            MistifyError: NOT_FOUND, it has no such goal; INVALID_CONFIG, the page token is none.
        """

    def goal(self, job_id: str, goal_id: str) -> Goal:
        """Return a goal of a job. No others are read.

        Raises:
            MistifyError: NOT_FOUND, it has no such goal.
        """
        goals = self.part(job_id, GoalSelection(goal_id=goal_id)).job.goals
        if not goals:  # an empty id selects no goal
            raise MistifyError(ErrorCode.NOT_FOUND, f'the job {job_id} has no goal "{goal_id}"')
        return goals[0]

    @abstractmethod
    def details(self, job_id: str, goal_id: str) -> GoalDetails:
        """Return the layers of a goal's network, and the curve of its training.

        The curve has a bounded number of points: evenly spaced ones, the first and the last, separately for
        points with accuracies and without.

        Raises:
            MistifyError: NOT_FOUND, it has no such goal.
        """

    @abstractmethod
    def goal_states(self, job_id: str) -> Counter[GoalState]:
        """Return the number of a job's goals in each state; empty if there is no such job."""

    @abstractmethod
    def states(self) -> tuple[Counter[JobState], Counter[GoalState]]:
        """Return how many jobs, and how many goals of all of them, are in each state."""

    @abstractmethod
    def page(
        self,
        limit: int,
        most_goals: int,
        before: str | None = None,
        selection: GoalSelection | None = None,
    ) -> tuple[list[JobPart], bool]:
        """Return a page of jobs, the newest first, and whether there are older ones. No others are read.

        Args:
            limit: The largest number of jobs.
            most_goals: The largest number of goals of all jobs; a first job with more comes alone.
            before: Only jobs that were submitted before this one.
            selection: The goals to read of each job; None for all.
        """

    @abstractmethod
    def unfinished(self) -> list[str]:
        """Return the ids of the jobs that have not ended, the oldest first."""

    @abstractmethod
    def batches(self, job_id: str) -> list[BatchState]:
        """Return a job's collective batches with all their results."""

    @abstractmethod
    def record(
        self, job_id: str, changes: Iterable[Change], seconds: float, spent: Mapping[str, float]
    ) -> None:
        """Make changes and record their events, all or none.

        Args:
            job_id: A job that has not ended.
            changes: The changes in the order in which their events are numbered.
            seconds: Seconds of work on the job so far.
            spent: Seconds by activity so far, summed over all tasks of the job.
        """

    @abstractmethod
    def end(self, job_id: str, goal_state: GoalState, job_state: JobState, reason: str = "") -> bool:
        """End a job, with an event for each goal and the job; goals that have ended do not change.

        Returns False for a job that has ended already, which does not change.

        Args:
            goal_state: The state of goals that have not ended yet.
            reason: A reason for the job and these goals.
        """

    @abstractmethod
    def edges(self, subject: str, kind: str, limit: int) -> list[EdgeRecord]:
        """Return up to `limit` of the latest edges of all jobs, the oldest first.

        Edges of the same model and data (`subject`) come before others of that kind of network.
        """

    @abstractmethod
    def events(self, job_id: str, after: int, limit: int) -> list[JobEvent]:
        """Return up to `limit` events numbered above `after`, in order."""

    @abstractmethod
    def latest_events(self, job_id: str, limit: int) -> list[JobEvent]:
        """Return up to `limit` of the last events of a job, in order."""

    @abstractmethod
    def remove(self, job_id: str) -> None:
        """Remove a job that has ended, with its checkpoints, packages, events and edges.

        Raises:
            MistifyError: CONFLICT, it has not ended, or a group tunes its packages.
        """

    @abstractmethod
    def shrink(self) -> int:
        """Give the space of removed jobs back to the disk, and return the bytes that became free."""

    @abstractmethod
    def referenced(self) -> set[str]:
        """Return the SHA-256 digests of all files that are still needed, and perhaps others."""
