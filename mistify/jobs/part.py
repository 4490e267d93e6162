"""A job with a selection of its goals, because a job may have thousands."""

from dataclasses import dataclass

from mistify.jobs.job import Job


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
