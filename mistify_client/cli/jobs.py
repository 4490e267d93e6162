"""The commands for jobs on a server, such as `mistify jobs`, `fetch`, `pause`, `cancel` and `remove`."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Goal, JobPriority, JobState
from mistify.jobs.part import JobPart
from mistify.parsing.quantities import format_bytes
from mistify.tables import plain_table
from mistify.times import moment
from mistify.tokens import read_token
from mistify_client.cli.errors import reported_errors
from mistify_client.cli.options import ExplainOption, ServerOption, TokenFile
from mistify_client.cli.serving import announcing_backoff
from mistify_client.files import output_directory
from mistify_client.origin import note_token_file
from mistify_client.porting.damaged import DamagedPackages
from mistify_client.porting.follow import package_directory, show_result
from mistify_client.porting.log import show_log
from mistify_client.porting.printing import print_line
from mistify_client.porting.report_files import REPORT_PAGE, fetch_report
from mistify_client.rpc.porting import PortingClient
from mistify_client.runtime.versions import state_directory

JobArgument = Annotated[str, typer.Argument(metavar="JOB")]


def register(app: typer.Typer) -> None:
    """Add the commands to a command line."""
    for command in (jobs, fetch, rename, tag, prioritize, pause, resume, cancel, remove, restore):
        app.command()(command)


def jobs(
    server: ServerOption,
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Default: list all jobs.")] = None,
    *,
    search: Annotated[
        str,
        typer.Option(
            help="Only jobs with this text in their id, name, submitter or tags; tag:TAG for a whole tag.",
            show_default="none",
        ),
    ] = "",
    removed: Annotated[
        bool, typer.Option("--removed", help="List the removed jobs that can still be restored.")
    ] = False,
    explain: ExplainOption = False,
    token_file: TokenFile = None,
) -> None:
    """List the jobs of a server, or show one: its log so far, its goals, and notes about them."""
    console = Console()
    with reported_errors(), _client(server, token_file) as client:
        if job is None:
            console.print(_job_table(client, search, removed=removed))
        else:
            _show_job(client, job, console, explain=explain)


def fetch(
    job: JobArgument,
    server: ServerOption,
    goal: Annotated[
        str | None, typer.Argument(metavar="[GOAL]", help="Default: every goal with a package.")
    ] = None,
    *,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the packages and report. Default: named like the job.")
    ] = None,
    without_blocks: Annotated[
        bool,
        typer.Option(
            "--without-blocks",
            help="Do not download the blocks of packages: `mistify adapt` downloads those that it needs.",
        ),
    ] = False,
    token_file: TokenFile = None,
) -> None:
    """Download the packages of a job and its report into OUT, or the package of one of its goals.

    An interrupted download resumes where it stopped. Exit code 3: there is no such job or package.
    Exit code 10: a package is damaged on the server; the others and the report were downloaded.
    """
    console, damaged = Console(), DamagedPackages()
    with reported_errors(), _client(server, token_file) as client:
        goals = _goals_to_fetch(client, job, goal)
        out = Path(job) if out is None else out
        output_directory(out)
        for fetched in goals:
            directory = package_directory(out, fetched.id)
            with damaged.recording(fetched.id):
                if without_blocks:
                    client.fetch_without_blocks(job, fetched.id, directory)
                    note_token_file(state_directory(directory), server, token_file)
                else:
                    client.fetch(job, fetched.id, directory)
                print_line(console, f"package: {directory}")
        if goal is None:
            fetch_report(client, client.job(job), out)
            print_line(console, f"report: {out / REPORT_PAGE}")
        damaged.check()


def rename(
    job: JobArgument,
    name: Annotated[str, typer.Argument(help="The new name, for people; an empty one removes it.")],
    server: ServerOption,
    token_file: TokenFile = None,
) -> None:
    """Give a job another name."""
    with reported_errors(), _client(server, token_file) as client:
        client.rename(job, name)


def tag(
    job: JobArgument,
    server: ServerOption,
    tags: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TAG]...", help="The new tags, such as team=vision; without any, it has none."
        ),
    ] = None,
    token_file: TokenFile = None,
) -> None:
    """Replace the tags of a job."""
    with reported_errors(), _client(server, token_file) as client:
        client.tag(job, tags or ())


def prioritize(
    job: JobArgument,
    priority: Annotated[JobPriority, typer.Argument(help="The new priority.")],
    server: ServerOption,
    token_file: TokenFile = None,
) -> None:
    """Give a job another priority: its steps start before those of jobs with a lower one."""
    with reported_errors(), _client(server, token_file) as client:
        client.prioritize(job, priority)


def pause(job: JobArgument, server: ServerOption, token_file: TokenFile = None) -> None:
    """Let a job start no further steps; those in progress end first, and nothing is lost.

    It stays paused, also when the server is restarted, until `mistify resume` lets it continue.
    """
    with reported_errors(), _client(server, token_file) as client:
        _show_state(job, client.pause(job).state, JobState.PAUSED)


def resume(job: JobArgument, server: ServerOption, token_file: TokenFile = None) -> None:
    """Let a paused job continue."""
    with reported_errors(), _client(server, token_file) as client:
        _show_state(job, client.resume(job).state, JobState.RUNNING)


def cancel(job: JobArgument, server: ServerOption, token_file: TokenFile = None) -> None:
    """Stop a job; goals that are met keep their packages."""
    with reported_errors(), _client(server, token_file) as client:
        _show_state(job, client.cancel(job).state, JobState.CANCELLED)


def remove(
    job: JobArgument,
    server: ServerOption,
    *,
    now: Annotated[
        bool, typer.Option("--now", help="Remove its files at once, which cannot be undone.")
    ] = False,
    token_file: TokenFile = None,
) -> None:
    """Remove a job that has ended, with its packages and all files that no other job needs.

    For a day, `mistify restore` undoes this; then the files are removed.
    """
    with reported_errors(), _client(server, token_file) as client:
        if now:
            typer.echo(f"removed {job}, freed {format_bytes(client.remove_now(job), 3)}")
        else:
            until = moment(client.remove(job), "seconds")
            typer.echo(f"removed {job}; until {until}, this command undoes it: mistify restore {job}")


def restore(job: JobArgument, server: ServerOption, token_file: TokenFile = None) -> None:
    """Restore a job that was removed less than a day ago; `mistify jobs --removed` lists them."""
    with reported_errors(), _client(server, token_file) as client:
        client.restore(job)
    typer.echo(f"restored {job}")


def _show_state(job: str, state: JobState, wanted: JobState) -> None:
    """Print the state of a job after a command that should have led to a state."""
    verb = "had already ended:" if state.ended and state is not wanted else "is"
    typer.echo(f"job {job} {verb} {state.value}")


def _client(server: str, token_file: Path | None) -> PortingClient:
    return PortingClient(server, read_token(token_file), backoff=announcing_backoff(server))


def _job_table(client: PortingClient, search: str, *, removed: bool) -> Table:
    """Return the table of jobs, with their names, tags and submitters if there are any."""
    parts = list(client.jobs(search, removed=removed))
    columns: dict[str, Callable[[JobPart], str]] = {
        "job": lambda part: part.job.id,
        "name": lambda part: part.job.name,
        "tags": lambda part: " ".join(part.job.tags),
        "state": lambda part: part.job.state.value,
        "priority": _special_priority,
        "created (UTC)": lambda part: moment(part.job.created_unix_ms, "seconds").removesuffix(" UTC"),
        "removed": lambda part: (
            moment(part.job.removed_unix_ms, "seconds") if part.job.removed_unix_ms else ""
        ),
        "by": lambda part: part.job.submitted_by,
        "goals met": lambda part: f"{part.goals_met}/{part.goal_count}",
    }
    needed = {title: value for title, value in columns.items() if not parts or any(map(value, parts))}
    table = plain_table(*needed)
    table.columns[0].no_wrap = True  # for the next command
    for part in parts:
        table.add_row(*(value(part) for value in needed.values()))
    return table


def _special_priority(part: JobPart) -> str:
    """Return the priority of a job; empty if it is normal or has no effect any more."""
    usual = part.job.state.ended or part.job.priority is JobPriority.NORMAL
    return "" if usual else part.job.priority.value


def _show_job(client: PortingClient, job_id: str, console: Console, *, explain: bool) -> None:
    """Print the log of a job so far, the table of its goals, and notes about them."""
    events = list(client.watch(job_id, so_far=True))
    job = client.job(job_id)  # requested last, so that the table is at least as recent as the log
    show_log(events, job, console)
    show_result(job, console, job.goals, explain=explain)
    for goal in job.goals:
        if goal.warning and not goal.state.ended:
            print_line(console, f"{goal.id}: {goal.warning}")
    reason = f": {job.reason}" if job.reason else ""
    submitted = moment(job.created_unix_ms, "seconds")
    print_line(console, f"job {job.id}, submitted {submitted}, is {job.state.value}{reason}")


def _goals_to_fetch(client: PortingClient, job_id: str, goal_id: str | None) -> Collection[Goal]:
    """Return one goal of a job, or all goals with a package.

    Raises:
        MistifyError: NOT_FOUND, there is no such job or goal, or no goal has a package.
    """
    if goal_id is not None:
        return [client.goal_with_package(job_id, goal_id)]
    job = client.job(job_id)
    goals = [goal for goal in job.goals if goal.files]
    if not goals:
        raise MistifyError(
            ErrorCode.NOT_FOUND,
            f"job {job_id} is {job.state.value}, and none of its goals has a package (yet); "
            f"see mistify jobs {job_id}",
        )
    return goals
