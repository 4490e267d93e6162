"""The log of a job: its events so far, one per line."""

from collections.abc import Iterable
from datetime import UTC, datetime

from rich.console import Console

from mistify.jobs.job import GoalState, Job, JobEvent, JobState, ProgressUpdate
from mistify_client.porting.printing import print_line
from mistify_client.porting.progress import SOURCE, LineDisplay, once_for_equal_goals, source_behind


def show_log(events: Iterable[JobEvent], job: Job, console: Console) -> None:
    """Print the events of a job with their times (UTC), and progress as in `LineDisplay`.

    Args:
        events: The events in order.
        job: The job, at least as recent as the events.
    """
    goals = {goal.id: goal for goal in job.goals}
    unix_ms = job.created_unix_ms

    def print_with_time(line: str) -> None:
        time = datetime.fromtimestamp(unix_ms / 1000, UTC)
        print_line(console, f"{time:%Y-%m-%d %H:%M:%S} {line}")

    lines = LineDisplay(print_with_time)
    for event in once_for_equal_goals(events):
        unix_ms = event.unix_ms
        match event.event:
            case ProgressUpdate() as progress:
                own = source_behind(event.goal_id, goals, job.sources)
                lines.update(event.goal_id or SOURCE, progress, own)
            case GoalState() as state if state.ended and event.goal_id in goals:
                goal = goals[event.goal_id]
                lines.ended(goal, job.source_of(goal))
            case GoalState() as state if not state.ended:
                lines.show_line(f"{event.goal_id}: {state.value}")
            case JobState() as state:
                lines.show_line(f"job {state.value}")
