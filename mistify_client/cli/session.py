"""The implementation of `mistify port`, `plan` and `add` for a valid config."""

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import typer
from rich.console import Console

from mistify.errors import MistifyError
from mistify.jobs.job import Goal, Job, JobPriority
from mistify.wording import counted, listed, names_by
from mistify_client.cli.errors import EXIT_INTERRUPTED
from mistify_client.cli.serving import Serving, announcing_backoff
from mistify_client.porting.follow import EXIT_UNMET, EXIT_UNSEEN, finish, follow, packages_of_others
from mistify_client.porting.local_files import local_files
from mistify_client.porting.plan_report import plan_report, plan_tree
from mistify_client.porting.progress import Display, activity_shown, display
from mistify_client.porting.submission import attach, run_alone
from mistify_client.rpc.files import FilesClient
from mistify_client.rpc.porting import PortingClient
from mistify_client.rpc.unseen import UnseenJobError, accepted


def port_goals(
    text: str,
    out: Path,
    serving: Serving,
    *,
    name: str = "",
    tags: Sequence[str] = (),
    priority: JobPriority = JobPriority.NORMAL,
    explain: bool = False,
) -> int:
    """Port to the goals of a config, and return the exit code.

    Args:
        text: JSON of the config.
        out: Directory for the packages and the report.
        name: Name of a new job, for people.
        tags: Tags of a new job.
        priority: Priority of a new job.
        explain: Print why algorithms and precisions were chosen.
    """
    console = Console()
    with _session(serving, console) as (client, shown):
        text = _with_files_sent(text, serving, shown.show_line, for_job=True)
        server, content = serving.remote or f"store:{serving.store}", _by_content(text, serving)
        job = attach(client, text, out, server, content=content, name=name, tags=tags, priority=priority)
        shown.show_line(f"job {job.id}, {counted(len(job.goals), 'goal')}")
        _run_alone(client, job, serving, shown)
        if others := packages_of_others(out, job):
            shown.show_line(f"{out} keeps the packages of another job as they are: {listed(others)}")
        _warn(job.goals, shown)
        with accepted(job.id):
            job, damaged = follow(client, job, out, shown)
    return finish(job, damaged, out, console, explain=explain)


def plan_goals(text: str, serving: Serving, *, as_json: bool) -> int:
    """Print the expected result of porting to the goals of a config, and return the exit code.

    Args:
        text: JSON of the config.
    """
    with (
        activity_shown(Console(stderr=True), "planning") as show_line,
        serving.started(resume=False, on_wait=show_line) as (address, token, backoff),
        PortingClient(address, token, backoff=backoff) as client,
    ):
        predicted = client.plan(_with_files_sent(text, serving, show_line))
    if as_json:
        typer.echo(json.dumps(plan_report(predicted), indent=2))
    else:
        Console().print(plan_tree(predicted), highlight=False)
    return EXIT_UNMET if predicted.out_of_reach else 0


def add_goals(
    job_id: str, text: str, only: Sequence[str], out: Path, serving: Serving, *, explain: bool = False
) -> int:
    """Add the goals of a config to a job, port to them, and return the exit code.

    Args:
        text: JSON of the config.
        only: The ids of the config's goals.
        out: Directory for the packages and the report.
        explain: Print why algorithms and precisions were chosen.
    """
    console = Console()
    with _session(serving, console) as (client, shown):
        text = _with_files_sent(text, serving, shown.show_line)
        job = client.add_goals(job_id, text)
        shown.show_line(f"job {job.id}, {len(only):,} of {counted(len(job.goals), 'goal')}")
        _run_alone(client, job, serving, shown)
        _warn((goal for goal in job.goals if goal.id in only), shown)
        with accepted(job.id):
            job, damaged = follow(client, job, out, shown, only)
    return finish(job, damaged, out, console, only, explain=explain)


@contextmanager
def _session(serving: Serving, console: Console) -> Iterator[tuple[PortingClient, Display]]:
    """Yield a client of the server, and the display for its job."""
    with (
        _resumable(serving.remote),
        _unseen_reported(serving.remote),
        display(console) as shown,
        serving.started(on_wait=shown.show_line) as (address, token, backoff),
        PortingClient(address, token, backoff=backoff) as client,
    ):
        yield client, shown


def _with_files_sent(
    text: str, serving: Serving, show_line: Callable[[str], object], *, for_job: bool = False
) -> str:
    """Upload the models and data that a config names to a remote server; return the config for it."""
    if serving.remote is None:
        return text
    files = local_files(text, serving.roots)
    backoff = announcing_backoff(serving.remote, show_line)
    with FilesClient(serving.remote, serving.token, backoff=backoff) as client:
        files.send(client, show_line, for_job=for_job)
    return files.text


def _by_content(text: str, serving: Serving) -> str:
    """Return a config with its files identified by their content, as it is already for a remote server.

    It is unchanged if a file cannot be read, which the server reports.
    """
    if serving.remote is None:
        with suppress(MistifyError):
            return local_files(text, serving.roots).text
    return text


def _run_alone(client: PortingClient, job: Job, serving: Serving, shown: Display) -> None:
    """Let only this job run on a server for this command."""
    paused = run_alone(client, job) if serving.remote is None else []
    if paused:
        shown.show_line(f"paused until their commands are repeated, unfinished: {listed(paused)}")


@contextmanager
def _resumable(server: str | None) -> Iterator[None]:
    """On Ctrl-C, print the command that resumes the job, and exit."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        fate = f"continues on {server}" if server else "is kept as it is"
        command = shlex.join(["mistify", *sys.argv[1:]])
        typer.echo(f"Interrupted; the job {fate}. The same command resumes it: {command}", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from interrupt


@contextmanager
def _unseen_reported(server: str | None) -> Iterator[None]:
    """Say that a job runs which the token does not give access to, with a way to see it, and exit."""
    try:
        yield
    except UnseenJobError as error:
        fetch = shlex.join(["mistify", "fetch", error.job_id, "--server", server or ""])
        typer.echo(
            f"{error}. With that token, the same command, or {fetch}, downloads the packages", err=True
        )
        raise typer.Exit(EXIT_UNSEEN) from error


def _warn(goals: Iterable[Goal], shown: Display) -> None:
    """Show the warnings of goals that are likely to be missed."""
    for warning, names in names_by((goal.id, goal.warning) for goal in goals if goal.warning).items():
        shown.show_line(f"{listed(names)}: {warning}")
