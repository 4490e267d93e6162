"""A job with a selection of its goals, of which there may be thousands."""

from dataclasses import dataclass

from mistify.jobs.job import Job


@dataclass(frozen=True)
class GoalSelection:
    """Goals of a job that an answer has, in the order of the configs.

    Attributes:
        goal_id: Only this goal; empty for any.
        page_size: Number of goals at most.
        page_token: From the previous part's `next_page_token`; empty for the first page.
    """

    goal_id: str = ""
    page_size: int = 0
    page_token: str = ""

    @property
    def empty(self) -> bool:
        """Return whether no goal is selected."""
        return not self.goal_id and self.page_size <= 0


@dataclass(frozen=True)
class JobPart:
    """A job with the goals that were selected.

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
