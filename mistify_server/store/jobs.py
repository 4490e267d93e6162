"""Interface of the job store."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mistify.errors import MistifyError
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import Goal, GoalState, Job, JobEvent, JobPriority, JobState, PackageFile
from mistify.jobs.part import GoalSelection, JobPage, JobPart, no_goal
from mistify_server.identity.callers import CallerId
from mistify_server.store.changes import Addition, Change, JobChanged, Submission
from mistify_server.store.edges import EdgeRecord
from mistify_server.store.leases import JobLease
from mistify_server.store.plans import BatchInputs, BatchState
from mistify_server.store.references import Reference


@dataclass(frozen=True)
class JobSearch:
    """A search for jobs; each must meet all conditions.

    Attributes:
        text: Text in its id, name, submitter or a tag, in any case; empty for any.
        tags: Whole tags of each job, in any case.
        removed: Whether to find the jobs that `JobStore.hide` removed instead of the others.
    """

    text: str = ""
    tags: tuple[str, ...] = ()
    removed: bool = False


ANY_JOB: Final = JobSearch()


@dataclass(frozen=True)
class JobChange:
    """A change of a job: its new name, tags and priority; None to keep them."""

    name: str | None = None
    tags: tuple[str, ...] | None = None
    priority: JobPriority | None = None


class NewJob(NamedTuple):
    """A job to store.

    Attributes:
        submission: The job with its plans and its config.
        most_unfinished: Number of unfinished jobs that its submitter may have; None for no limit.
        owner: The server that gets the first lease of the job (`FIRST_FENCE`); None for no server.
        offered: Whether other servers hear of the job, because its owner has no worker for it.
    """

    submission: Submission
    most_unfinished: int | None = None
    owner: str | None = None
    offered: bool = False


class StoredPackage(NamedTuple):
    """The package of a goal: SHA-256 of its manifest in hex, and its signature; None if it has none."""

    job_id: str
    goal_id: str
    manifest: str
    signature: PackageFile | None


class JobOrigin(NamedTuple):
    """The call that queued a job last.

    Attributes:
        traceparent: Its position in a trace; empty if it was not traced.
        queued_unix_ms: Its time, in milliseconds since 1970.
    """

    traceparent: str
    queued_unix_ms: int


class JobStore(ABC):
    """Store of jobs, their checkpoints and their events.

    A store contains the jobs of one tenant, or all jobs. It does not know those of other tenants: their ids
    are unknown, they are in no list or count, and predictions do not learn from them. The server itself uses
    the store of all jobs, and with it the methods that concern no single job.

    Every method is one transaction. Once a writing method has returned, its changes survive a machine crash.
    Calls take milliseconds, unless they read or write all goals of a job with thousands. All methods raise
    `MistifyError` NOT_FOUND if there is no such job, STORE_VERSION if only a newer version of Mistify can
    read it, and UNAVAILABLE if the disk is full, read-only or broken.
    """

    def create(
        self, submission: Submission, most_unfinished: int | None = None, owner: str | None = None
    ) -> Job:
        """Store a new job and its first event, or return the job that already has the idempotency key.

        Args:
            submission: The job with its plans and its config.
            most_unfinished: Number of unfinished jobs that its submitter may have; None for no limit.
            owner: The server that gets the first lease of the job (`FIRST_FENCE`); None for no server.

        Raises:
            MistifyError: CONFLICT, the key is known with another config text; QUOTA_EXCEEDED.
        """
        (created,) = self.create_all([NewJob(submission, most_unfinished, owner)])
        if isinstance(created, MistifyError):
            raise created
        return created

    @abstractmethod
    def create_all(self, new: Sequence[NewJob]) -> list[Job | MistifyError]:
        """Store new jobs in one transaction, in order, as `create` does one by one.

        Returns:
            For each, what `create` returns or raises. Jobs that are refused do not affect the others.
        """

    @abstractmethod
    def known_keys(self, idempotency_keys: Collection[str]) -> frozenset[str]:
        """Return those of some idempotency keys with which jobs were submitted."""

    @abstractmethod
    def find(self, idempotency_key: str, config_text: str) -> Job | None:
        """Return the job that was submitted with a key; None if there is none.

        Raises:
            MistifyError: CONFLICT, the key is known with another config text.
        """

    @abstractmethod
    def add_goals(
        self,
        job_id: str,
        addition: Addition,
        most_unfinished: int | None = None,
        planned_for: tuple[int, int] | None = None,
    ) -> bool:
        """Store new goals of a job; a finished job is queued again, for any server.

        Each goal gets an event, and so does the job if it is queued. Returns False, without any change, if
        the job is not as it was when the goals were planned.

        Args:
            addition: The goals, with the plans that include them.
            most_unfinished: Number of unfinished jobs that its submitter may have; None for no limit.
            planned_for: The number of goals that the job had, and how many of them had failed or were
                cancelled; None if this does not matter.

        Raises:
            MistifyError: CONFLICT, the job is removed; QUOTA_EXCEEDED, the job is finished.
        """

    @abstractmethod
    def added(self, job_id: str, idempotency_key: str, config_text: str) -> bool:
        """Check whether goals were added to a job with a key; keys are specific to a job.

        Raises:
            MistifyError: CONFLICT, the key is known with another config text.
        """

    @abstractmethod
    def job(self, job_id: str) -> Job:
        """Return a job in its current state."""

    @abstractmethod
    def ended(self, job_id: str) -> bool:
        """Check whether a job is finished."""

    @abstractmethod
    def part(self, job_id: str, selection: GoalSelection) -> JobPart:
        """Return a job in its current state with selected goals; other goals are not read.

        Raises:
            MistifyError: NOT_FOUND, it has no such goal; INVALID_CONFIG, the page token is invalid.
        """

    def goal(self, job_id: str, goal_id: str) -> Goal:
        """Return a goal of a job; other goals are not read.

        Raises:
            MistifyError: NOT_FOUND, it has no such goal.
        """
        goals = self.part(job_id, GoalSelection(goal_id=goal_id)).job.goals
        if not goals:  # an empty id selects no goal
            raise no_goal(job_id, goal_id)
        return goals[0]

    @abstractmethod
    def details(self, job_id: str, goal_id: str) -> GoalDetails:
        """Return the layers and operators of a goal's network and its training curve.

        The curve has a bounded number of points: evenly spaced ones, the first and the last, separately for
        points with and without accuracy.

        Raises:
            MistifyError: NOT_FOUND, it has no such goal.
        """

    @abstractmethod
    def inputs(self, job_id: str) -> list[BatchInputs]:
        """Return the inputs of a job's batches, in order; the rest of their plans is not read."""

    @abstractmethod
    def config_text(self, job_id: str) -> str:
        """Return the config with which a job was submitted, without goals that were added later."""

    @abstractmethod
    def origin(self, job_id: str) -> JobOrigin:
        """Return the call that queued a job last: its submission, or an addition after it had ended."""

    @abstractmethod
    def submitter(self, job_id: str) -> CallerId:
        """Return who submitted a job, with the tenant to which it belongs."""

    @abstractmethod
    def goal_states(self, job_id: str) -> Counter[GoalState]:
        """Return the number of a job's goals in each state; empty if there is no such job.

        Raises:
            MistifyError: STORE_VERSION, a goal is in a state that only a newer version knows.
        """

    @abstractmethod
    def states(self) -> tuple[Counter[JobState], Counter[GoalState]]:
        """Return the number of jobs, and of goals in all jobs, in each state that this version knows."""

    @abstractmethod
    def page(
        self,
        limit: int,
        most_goals: int,
        before: str | None = None,
        selection: GoalSelection | None = None,
        search: JobSearch = ANY_JOB,
    ) -> JobPage:
        """Return a page of jobs; other jobs are not read.

        Args:
            limit: Maximum number of jobs.
            most_goals: Maximum total number of goals; if the first job has more, it is the only one.
            before: Id of a job; only jobs submitted before it are returned.
            selection: The goals to read of each job; None for all.
            search: The jobs to return.
        """

    @abstractmethod
    def packages(self) -> list[StoredPackage]:
        """Return the packages of all goals, in the order of job and goal ids."""

    @abstractmethod
    def set_files(self, files: Mapping[tuple[str, str], PackageFile]) -> None:
        """Add files to packages, in place of those of the same names.

        Args:
            files: Ids of a job and of its goal -> a file of the goal's package.
        """

    @abstractmethod
    def change(self, job_id: str, change: JobChange) -> None:
        """Change the name, the tags or the priority of a job."""

    @abstractmethod
    def hide(self, job_id: str, unix_ms: int) -> int:
        """Mark a finished job as removed at a time; lists omit it, and no goals can be added to it.

        A job that is already removed keeps its time.

        Returns:
            The time of its removal.

        Raises:
            MistifyError: CONFLICT, the job is unfinished, or a group tunes its packages.
        """

    @abstractmethod
    def restore(self, job_id: str) -> None:
        """Undo `hide`; no effect on other jobs."""

    @abstractmethod
    def hidden(self, before_ms: int) -> list[str]:
        """Return the ids of jobs that were removed by `hide` before a time."""

    @abstractmethod
    def all_ended(self) -> bool:
        """Check whether all jobs are finished, including those that only a newer version can read."""

    @abstractmethod
    def unfinished_of(self, submitter: str) -> int:
        """Return the number of unfinished jobs that a caller has submitted."""

    @abstractmethod
    def batches(self, job_id: str) -> list[BatchState]:
        """Return a job's collective batches with all their results."""

    @abstractmethod
    def with_batches(self, job_id: str) -> tuple[Job, list[BatchState]]:
        """Return a job and its batches at one point in time: the goals of the job are those of the plans."""

    @abstractmethod
    def record(
        self,
        job_id: str,
        changes: Iterable[Change],
        seconds: float,
        spent: Mapping[str, float],
        lease: JobLease | None = None,
    ) -> None:
        """Apply changes and record their events atomically; a paused job stays paused until it ends.

        Args:
            job_id: Id of an unfinished job.
            changes: The changes in the order of their event numbers.
            seconds: Seconds of work on the job so far.
            spent: Activity -> seconds so far, summed over all tasks of the job.
            lease: The lease of the server that runs the job; None if none does.

        Raises:
            LeaseLostError: Another server has taken the job, or it was ended; nothing is recorded.
        """

    @abstractmethod
    def end(self, job_id: str, end: JobChanged, lease: JobLease | None = None) -> bool:
        """Finish a job, with an event for the job and each unfinished goal; finished goals do not change.

        All leases of the job end. Returns False, without any change, if the job is already finished.

        Args:
            end: The state, FAILED or CANCELLED, and the reason, also of the unfinished goals.
            lease: The lease without which the job is not finished; None to finish it anyway.

        Raises:
            LeaseLostError: Another server has taken the job, or it was ended; it does not change.
        """

    @abstractmethod
    def set_paused(self, job_id: str, *, paused: bool) -> bool:
        """Pause or resume an unfinished job, with an event.

        Returns False, without any change, if the job is finished or already in this state.
        """

    @abstractmethod
    def edges(self, subject: str, kind: str, limit: int) -> list[EdgeRecord]:
        """Return up to `limit` of the latest edges of all jobs, oldest first.

        Edges of the same model and data (`subject`) take precedence over others of that kind of network.
        """

    @abstractmethod
    def events(self, job_id: str, after: int, limit: int) -> list[JobEvent]:
        """Return up to `limit` events with numbers above `after`, in order."""

    @abstractmethod
    def latest_events(self, job_id: str, limit: int) -> list[JobEvent]:
        """Return up to `limit` of the latest events of a job, in order."""

    @abstractmethod
    def remove(self, job_id: str, hidden_before_ms: int | None = None) -> None:
        """Remove a finished job with its checkpoints, packages, events and edges.

        Args:
            hidden_before_ms: Only remove it if `hide` removed it before this time; None to remove it anyway.

        Raises:
            MistifyError: CONFLICT, the job is unfinished, a group tunes its packages, or it was restored.
        """

    @abstractmethod
    def size(self) -> int:
        """Return the size of the database in bytes."""

    @abstractmethod
    def shrink(self) -> int:
        """Release the disk space of removed jobs, and return the number of bytes freed."""

    @abstractmethod
    def referenced_digests(self) -> set[str]:
        """Return the SHA-256 digests of all files still in use, and possibly others."""

    @abstractmethod
    def references(self) -> list[Reference]:
        """Return every use of an artifact, including those by named models."""

    @abstractmethod
    def faults(self) -> list[str]:
        """Return the faults of the database; empty if its content and the links between rows are intact."""
