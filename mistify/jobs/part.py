"""A job with a selection of its goals, because a job may have thousands."""

from dataclasses import dataclass, field, replace

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState, Job


@dataclass(frozen=True)
class GoalSelection:
    """The goals of a job that a response contains, in the order of the configs.

    Attributes:
        goal_id: Only this goal; empty for any.
        page_size: Maximum number of goals.
        page_token: From the previous part's `next_page_token`; empty for the first page.
    """

    goal_id: str = ""
    page_size: int = 0
    page_token: str = ""

    @property
    def empty(self) -> bool:
        """True if no goal is selected."""
        return not self.goal_id and self.page_size <= 0


@dataclass(frozen=True)
class JobPart:
    """A job with the selected goals.

    Attributes:
        job: The job, without its other goals; in a list of jobs without goals, also without its sources.
        goal_count: Number of goals in the whole job.
        goals_met: Number of goals in the whole job that are met.
        next_page_token: Empty on the last page.
    """

    job: Job
    goal_count: int
    goals_met: int
    next_page_token: str = ""


@dataclass(frozen=True)
class UnreadableJob:
    """A job in a list that only servers of a newer version can read.

    Attributes:
        reason: Why, and what to do.
    """

    id: str
    reason: str


@dataclass(frozen=True)
class JobPage:
    """A page of a list of jobs, newest first.

    Attributes:
        next_page_token: The id of its oldest job; empty on the last page.
        unreadable: The jobs of the page that this server cannot read.
    """

    jobs: list[JobPart]
    next_page_token: str = ""
    unreadable: list[UnreadableJob] = field(default_factory=list)


def part_of(job: Job, selection: GoalSelection | None) -> JobPart:
    """Return the selected goals of a job; None selects all.

    Raises:
        MistifyError: NOT_FOUND, it has no such goal; INVALID_CONFIG, the page token is invalid.
    """
    count, met = len(job.goals), sum(goal.state is GoalState.MET for goal in job.goals)
    if selection is None:
        return JobPart(job, count, met)
    if selection.goal_id:
        goals = tuple(goal for goal in job.goals if goal.id == selection.goal_id)
        if not goals:
            raise no_goal(job.id, selection.goal_id)
        return JobPart(replace(job, goals=goals), count, met)
    first = first_position(selection.page_token)
    end = first + max(0, selection.page_size)
    return JobPart(replace(job, goals=job.goals[first:end]), count, met, str(end) if end < count else "")


def no_goal(job_id: str, goal_id: str) -> MistifyError:
    """Return the error for a goal that a job does not have."""
    return MistifyError(ErrorCode.NOT_FOUND, f'the job {job_id} has no goal "{goal_id}"')


def first_position(token: str) -> int:
    """Parse a page token, which is the position of the page's first goal.

    Raises:
        MistifyError: INVALID_CONFIG.
    """
    if token and not (token.isascii() and token.isdecimal() and len(token) < 10):
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f"got the page token {token[:40]!r}; expected the previous page's token; start without one",
        )
    return int(token or 0)
