"""A job from submission to report: watch it, download each package when its goal ends, then the report."""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from rich.console import Console

from mistify.config.porting import is_id
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Goal, GoalState, Job, JobState, ProgressUpdate
from mistify.jobs.report import PREDICTION, judged_by
from mistify.package.manifest import MANIFEST
from mistify.wording import counted, listed, names_by
from mistify_client.porting.damaged import DamagedPackages
from mistify_client.porting.printing import print_line
from mistify_client.porting.progress import SOURCE, Display, once_for_equal_goals, source_behind
from mistify_client.porting.report_files import REPORT, REPORT_PAGE, fetch_report
from mistify_client.porting.table import table
from mistify_client.rpc.porting import PortingClient

#: The exit code of a job with unmet goals.
EXIT_UNMET = 11

#: The exit code of a job that runs, and that the caller may not see.
EXIT_UNSEEN = 15

#: Packages, and notes, that are listed one by one; more are counted.
_MOST_LISTED: Final = 5


def packages_of_others(out: Path, job: Job) -> list[str]:
    """Return the goals of other jobs whose packages are in an output directory."""
    own = {goal.id for goal in job.goals}
    manifests = (out / "goals").glob(f"*/{MANIFEST}")
    return sorted({manifest.parent.name for manifest in manifests} - own)


def package_directory(out: Path, goal_id: str) -> Path:
    """Return the directory for the package of a goal.

    Raises:
        MistifyError: CORRUPT_PACKAGE if a server has sent an id that points elsewhere.
    """
    if not is_id(goal_id):
        raise MistifyError(
            ErrorCode.CORRUPT_PACKAGE,
            f"the server calls a goal {goal_id!r}, which cannot name a directory; do not trust that server",
        )
    return out / "goals" / goal_id


def follow(
    client: PortingClient,
    job: Job,
    out: Path,
    display: Display,
    only: Collection[str] | None = None,
    *,
    fetch: Callable[[str, str, Path], object] | None = None,
) -> tuple[Job, DamagedPackages]:
    """Show a job while it runs, download the package of each goal when it ends, then write the report.

    Args:
        out: The directory for the packages and the report.
        display: Shows the progress.
        only: Ids of the goals to show, download and wait for; None for all.
        fetch: Downloads the package of a job's goal into a directory; None to download all of its files.

    Returns:
        The job in its final state, and the goals whose packages are damaged on the server.
    """
    fetch, damaged = fetch or client.fetch, DamagedPackages()
    sources, goals = job.sources, {goal.id: goal for goal in job.goals}
    left = None if only is None else set(only)
    job_state: JobState | None = None
    for event in once_for_equal_goals(client.watch(job.id)):
        if isinstance(event.event, JobState):
            if event.event is JobState.PAUSED:
                display.show_line(f"paused; this continues the job: mistify resume {job.id}")
            elif job_state is JobState.PAUSED:
                display.show_line(f"no longer paused: {event.event.value}")
            job_state = event.event
            continue
        if left is not None and event.goal_id not in left:
            continue
        match event.event:
            case ProgressUpdate() as progress:
                own = source_behind(event.goal_id, goals, sources)
                display.update(event.goal_id or SOURCE, progress, own)
            case GoalState() as state if event.goal_id is not None and (
                state.ended or source_behind(event.goal_id, goals, sources) is None
            ):
                now, goal = client.with_goal(job.id, event.goal_id)
                sources = now.sources
                if not state.ended:
                    continue
                if goal.files:
                    directory = package_directory(out, goal.id)
                    with damaged.recording(goal.id):
                        fetch(job.id, goal.id, directory)
                display.ended(goal, now.source_of(goal))
                if left is not None:
                    left.remove(goal.id)
        if left is not None and not left:
            break
    job = client.job(job.id)
    fetch_report(client, job, out)
    return job, damaged


def finish(
    job: Job,
    damaged: DamagedPackages,
    out: Path,
    console: Console,
    only: Collection[str] | None = None,
    *,
    explain: bool = False,
) -> int:
    """Print the table and the locations of packages and report, and return the exit code.

    Args:
        job: A job that has ended.
        damaged: The goals whose packages could not be downloaded.
        out: The directory of the report and the packages.
        console: Prints the table.
        only: Ids of the goals that determine the verdict, and whose packages are listed; None for all. The
            table always has all goals.
        explain: Also print all notes, and why algorithms and precisions were chosen.

    Raises:
        MistifyError: CORRUPT_PACKAGE, after printing: a package could not be downloaded.
    """
    goals = [goal for goal in job.goals if only is None or goal.id in only]
    verdict, code = _verdict(job, goals)
    show_result(job, console, goals, explain=explain)
    packages = [package_directory(out, goal.id) for goal in goals if goal.files and goal.id not in damaged]
    if len(packages) > _MOST_LISTED:
        print_line(console, f"{len(packages):,} packages: {packages[0].parent}")
    else:
        for directory in packages:
            print_line(console, f"package: {directory}")
    for name in (REPORT, REPORT_PAGE):
        print_line(console, f"report: {out / name}")
    print_line(console, verdict)
    damaged.check()
    return code


def show_result(job: Job, console: Console, goals: Collection[Goal], *, explain: bool = False) -> None:
    """Print the table of a job, why goals are not met, and notes on goals.

    Args:
        job: The job; the table has all of its goals.
        goals: The goals with sentences below the table.
        explain: Also print why algorithms and precisions were chosen, and all notes even if there are many.
    """
    console.print(table(job, console.width))
    notes = list(_notes(goals))
    choices = list(_choices(goals))
    hidden = [] if explain else [*choices, *(notes if len(notes) > _MOST_LISTED else ())]
    shown = [line for line in (*_failures(goals), *choices, *notes) if line not in hidden]
    for line in shown:
        print_line(console, line)
    if hidden:
        print_line(console, f"{counted(len(hidden), 'note')} on choices and packages: --explain")


def _failures(goals: Collection[Goal]) -> Iterator[str]:
    """Yield why goals are not met, each reason once."""
    unmet = [goal for goal in goals if goal.state is not GoalState.MET and goal.reason]
    states = [(goal.id, f"{goal.state.value}: {goal.reason}") for goal in unmet]
    for state, names in names_by(states).items():
        yield f"{listed(names)} {'is' if len(names) == 1 else 'are'} {state}"


def _choices(goals: Collection[Goal]) -> Iterator[str]:
    """Yield why precisions and algorithms were chosen, each reason once."""
    precisions = [(goal.id, goal.precision_choice) for goal in goals if goal.precision_choice]
    for choice, names in names_by(precisions).items():
        yield f"{listed(names)}: chose {choice}"
    algorithms = [(goal.id, f"by {goal.algorithm}: {goal.choice}") for goal in goals if goal.choice]
    for choice, names in names_by(algorithms).items():
        yield f"{listed(names)} {choice}"


def _notes(goals: Collection[Goal]) -> Iterator[str]:
    """Yield notes on packages, each once for all goals to which it applies."""
    for note, names in names_by((goal.id, goal.note) for goal in goals if goal.note).items():
        yield f"{listed(names)} {note}"


def _verdict(job: Job, goals: Collection[Goal]) -> tuple[str, int]:
    """Return the last line and the exit code for the goals that count."""
    unmet = sum(goal.state is not GoalState.MET for goal in goals)
    all_are = f"All {len(goals):,} goals are" if len(goals) != 1 else "The goal is"
    predicted = sum(judged_by(goal) == PREDICTION for goal in goals)
    match job.state:
        case JobState.FAILED:
            return f"The job failed: {job.reason}", ErrorCode.INTERNAL.exit_code
        case JobState.CANCELLED:
            return "The job was cancelled.", ErrorCode.CANCELLED.exit_code
        case _ if unmet:
            some = f"{unmet:,} of {len(goals):,} goals" if len(goals) != 1 else "The goal"
            return f"{some} {'is' if unmet == 1 else 'are'} not met.", EXIT_UNMET
        case _ if predicted:
            by = "by prediction" if predicted == len(goals) else f"{predicted:,} of them by prediction"
            return f"{all_are} met, {by} rather than measurement.", 0
        case _:
            return f"{all_are} met.", 0
