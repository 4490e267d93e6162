"""From a config to packages: submit, watch, fetch each goal as it ends, report."""

from pathlib import Path

from rich.console import Console

from mistify.errors import ErrorCode
from mistify.jobs import Goal, GoalState, Job, JobState, ProgressUpdate
from mistify_client.client import PortingClient
from mistify_client.progress import SOURCE, Display
from mistify_client.report import REPORT, report, table, write_json

#: The exit code of a job that ended with goals that are not met.
EXIT_UNMET = 11


def package_directory(out: Path, goal_id: str) -> Path:
    """Where the package of a goal belongs."""
    return out / "goals" / goal_id


def follow(client: PortingClient, job: Job, out: Path, display: Display) -> Job:
    """Show a job while it runs, fetch the package of each goal as it ends; the job as it ended."""
    source = job.source
    for event in client.watch(job.id):
        match event.event:
            case ProgressUpdate() as progress:
                display.update(event.goal_id or SOURCE, progress, source)
            case GoalState.RUNNING:
                source = source or client.job(job.id).source
            case GoalState.MET | GoalState.UNMET | GoalState.FAILED | GoalState.CANCELLED:
                job = client.job(job.id)
                source = job.source
                goal = _goal(job, event.goal_id)
                if goal.files:
                    client.fetch(job.id, goal.id, package_directory(out, goal.id))
                display.ended(goal, source)
    return client.job(job.id)


def finish(job: Job, out: Path, console: Console) -> int:
    """Write the report, print the table and where the packages are; the exit code."""
    write_json(out / REPORT, report(job))
    console.print(table(job, console.width))
    unmet = [goal for goal in job.goals if goal.state is not GoalState.MET]
    verdict, code = _verdict(job, len(unmet))
    lines = [f"{goal.id} is {goal.state.value}: {goal.reason}" for goal in unmet]
    lines += [f"package: {package_directory(out, goal.id)}" for goal in job.goals if goal.files]
    for line in (*lines, f"report: {out / REPORT}", verdict):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return code


def _verdict(job: Job, unmet: int) -> tuple[str, int]:
    match job.state:
        case JobState.FAILED:
            return f"The job failed: {job.reason}", ErrorCode.INTERNAL.exit_code
        case JobState.CANCELLED:
            return "The job was cancelled.", ErrorCode.CANCELLED.exit_code
        case _ if unmet:
            return f"{unmet} of {len(job.goals)} goals are not met.", EXIT_UNMET
        case _:
            return f"All {len(job.goals)} goals are met.", 0


def _goal(job: Job, goal_id: str | None) -> Goal:
    return next(goal for goal in job.goals if goal.id == goal_id)
