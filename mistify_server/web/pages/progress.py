"""A job's work in progress according to its latest events."""

from collections.abc import Iterable
from dataclasses import dataclass

from mistify.jobs.job import GoalState, Job, JobEvent, JobState, ProgressUpdate

#: The subject of progress without a goal.
SOURCE = "source"


@dataclass(frozen=True)
class JobProgress:
    """The number of a job's finished goals, and the time left in seconds; None if it cannot be estimated."""

    finished: int
    goals: int
    seconds_left: float | None


def job_progress(job: Job) -> JobProgress:
    """Return the progress of a job with all its goals.

    The time left assumes that the other goals take as long as the finished ones. This is rather too long,
    because the time of the finished ones includes the tuning of the source.
    """
    finished = sum(goal.state.ended for goal in job.goals)
    seconds = job.seconds / finished * (len(job.goals) - finished) if finished else None
    return JobProgress(finished, len(job.goals), seconds)


def progress_of(events: Iterable[JobEvent]) -> dict[str, str]:
    """Describe the current work on the source and on each goal in progress.

    `static/mistify.js` does the same with later events.
    """
    shown: dict[str, str] = {}
    for event in events:
        match event.event:
            case ProgressUpdate(stage, step, total):
                shown[event.goal_id or SOURCE] = f"{stage}, step {step} of {total}" if total else stage
            case GoalState.RUNNING:
                shown.pop(SOURCE, None)
            case GoalState():
                shown.pop(event.goal_id or "", None)
            case JobState():  # the job has started or ended
                shown.clear()
    return shown
