"""A job's work in progress according to its latest events."""

from collections.abc import Sequence
from dataclasses import dataclass

from mistify.jobs.job import GoalState, Job, JobEvent, JobState, ProgressUpdate

#: The subject of progress without a goal.
SOURCE = "source"


@dataclass(frozen=True)
class JobProgress:
    """The progress of a job.

    Attributes:
        finished: Number of finished goals; None if only some goals are known.
        goals: Number of goals.
        share: Share of the expected work that is done, or else of the goals; None if neither is known.
        seconds_left: None if it cannot be estimated.
    """

    finished: int | None
    goals: int
    share: float | None
    seconds_left: float | None


@dataclass(frozen=True)
class SubjectProgress:
    """The current work on a subject: its stage for people, and its training steps; 0 before any training."""

    stage: str
    step: int = 0
    total: int = 0


def job_progress(job: Job, goal_count: int, events: Sequence[JobEvent]) -> JobProgress:
    """Return the progress of a job.

    Args:
        job: The job with all or some of its goals.
        goal_count: Number of its goals.
        events: Its latest events.
    """
    whole = len(job.goals) == goal_count
    finished = sum(goal.state.ended for goal in job.goals) if whole else None
    updates = (event.event for event in reversed(events) if isinstance(event.event, ProgressUpdate))
    latest = next((update for update in updates if update.job_share is not None), None)
    if latest is None:
        share = None if finished is None else finished / max(goal_count, 1)
        return JobProgress(finished, goal_count, share, None)
    return JobProgress(finished, goal_count, latest.job_share, latest.seconds_left)


def progress_of(events: Sequence[JobEvent]) -> dict[str, SubjectProgress]:
    """Return the current work on the source and on each goal in progress.

    Stages of a goal without steps keep those of its training. `static/mistify.js` does the same with later
    events.
    """
    shown: dict[str, SubjectProgress] = {}
    for event in events:
        match event.event:
            case ProgressUpdate(stage, step, total):
                subject = event.goal_id or SOURCE
                if total > 1:
                    shown[subject] = SubjectProgress(f"{stage}, step {step:,} of {total:,}", step, total)
                else:
                    before = shown.get(subject) if event.goal_id else None
                    shown[subject] = SubjectProgress(stage, *((before.step, before.total) if before else ()))
            case GoalState.RUNNING:
                shown.pop(SOURCE, None)
            case GoalState():
                shown.pop(event.goal_id or "", None)
            case JobState():  # the job has started or ended
                shown.clear()
    return shown
