"""A job's work in progress according to its latest events."""

from collections.abc import Iterable

from mistify.jobs.job import GoalState, JobEvent, JobState, ProgressUpdate

#: The subject of progress without a goal.
SOURCE = "source"


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
