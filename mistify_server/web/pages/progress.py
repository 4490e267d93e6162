"""Work in progress in a job, by its last events."""

from collections.abc import Iterable

from mistify.jobs.job import GoalState, JobEvent, JobState, ProgressUpdate

#: The subject of progress that is no goal's.
SOURCE = "source"


def progress_of(events: Iterable[JobEvent]) -> dict[str, str]:
    """Describe the present work on each goal in progress, and on the source.

    `static/mistify.js` does the same with the events that follow.
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
            case JobState():  # it begins, or has ended
                shown.clear()
    return shown
