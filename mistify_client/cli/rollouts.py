"""The commands of roll-outs: `mistify rollout start`, `status`, `pause`, `resume` and `back`."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from mistify.errors import Problem, invalid_config
from mistify.parsing.quantities import format_share, parse_duration, parse_figure, parse_time
from mistify.parsing.validation import InvalidValue
from mistify.rollouts import (
    EVERY_DEVICE,
    NewRollout,
    Rollout,
    RolloutCriteria,
    RolloutProgress,
    RolloutState,
)
from mistify.tables import plain_table
from mistify.times import moment
from mistify.tokens import read_token
from mistify.wording import counted
from mistify_client.cli.errors import reported_errors
from mistify_client.cli.groups import CommandGroup
from mistify_client.cli.options import ServerOption, TokenFile
from mistify_client.cli.serving import announcing_backoff
from mistify_client.porting.printing import print_line
from mistify_client.rpc.rollouts import RolloutsClient

#: Digits of shares and ratios.
_DIGITS: Final = 3

#: The text for no limit.
_NONE: Final = "none"

_PROGRESS = TypeAdapter(RolloutProgress)

RolloutArgument = Annotated[str, typer.Argument(metavar="ROLLOUT", help="The id of a roll-out.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands to a command line."""
    group = typer.Typer(cls=CommandGroup, no_args_is_help=True)
    for command in (start, status, pause, resume, back):
        group.command()(command)
    app.add_typer(group, name="rollout", help="Replace a package on the devices of a fleet, stage by stage.")


def start(
    job: Annotated[str, typer.Argument(metavar="JOB")],
    goal: Annotated[str, typer.Argument(metavar="GOAL", help="The goal whose package is rolled out.")],
    server: ServerOption,
    *,
    to: Annotated[
        str,
        typer.Option(
            metavar="PACKAGE[/DEVICES]",
            help="The package to replace, by the goal that it was shipped for, and a pattern for the names "
            "of devices, such as phone/kitchen-*.",
            show_default="GOAL on all devices",
        ),
    ] = "",
    stages: Annotated[
        str, typer.Option(metavar="SHARES", help="Shares of the devices, ascending to 100%.")
    ] = "1%,10%,100%",
    after: Annotated[str, typer.Option(metavar="TIME", help="Minimum time of a stage.")] = "1h",
    devices: Annotated[
        int,
        typer.Option(min=1, help="Number of devices in each stage that have to report, if it has as many."),
    ] = 1,
    errors: Annotated[
        str, typer.Option(metavar="SHARE", help="Stop if more of the devices fail to install the package.")
    ] = "5%",
    latency: Annotated[
        str, typer.Option(metavar="RATIO", help="Stop if inferences take longer than this, or none.")
    ] = "1.2x",
    agreement: Annotated[
        str,
        typer.Option(metavar="SHARE", help="Stop if fewer examples of devices get the same answer, or none."),
    ] = "70%",
    token_file: TokenFile = None,
) -> None:
    """Replace a package on the devices of a fleet by that of a goal, stage by stage.

    A stage passes by itself. If errors, latency or agreement are beyond their limits, the roll-out stops, and
    its devices return to their previous package. Exit code 4: the package is being replaced already.
    """
    with reported_errors():
        package, _, pattern = (to or goal).partition("/")
        problems: list[Problem] = []
        criteria = RolloutCriteria(
            after_seconds=_read(parse_duration, after, "--after", problems),
            devices=devices,
            errors=_read(_share, errors, "--errors", problems),
            latency=None if latency == _NONE else _read(_ratio, latency, "--latency", problems),
            agreement=None if agreement == _NONE else _read(_share, agreement, "--agreement", problems),
        )
        shares = [_read(parse_figure, share.strip(), "--stages", problems) for share in stages.split(",")]
        if problems:
            raise invalid_config(problems, "the command line")
        new = NewRollout(job, goal, package, pattern or EVERY_DEVICE, tuple(shares), criteria)
        with _client(server, token_file) as client:
            _show(client.start(new))


def status(
    server: ServerOption,
    rollout: Annotated[
        str | None, typer.Argument(metavar="[ROLLOUT]", help="Default: the newest roll-outs.")
    ] = None,
    *,
    as_json: JsonOption = False,
    token_file: TokenFile = None,
) -> None:
    """Show the newest roll-outs, or one with its stages, figures and limits.

    Exit code 3: there is no such roll-out.
    """
    with reported_errors(), _client(server, token_file) as client:
        if rollout is None:
            newest = client.rollouts()
            if as_json:
                typer.echo(json.dumps({"rollouts": [_plain(each) for each in newest]}, indent=2))
            elif newest:
                Console().print(_table(newest))
            else:
                typer.echo("no roll-outs yet; mistify rollout start JOB GOAL starts one")
        elif as_json:
            typer.echo(json.dumps(_plain(client.rollout(rollout)), indent=2))
        else:
            _show(client.rollout(rollout))


def pause(rollout: RolloutArgument, server: ServerOption, token_file: TokenFile = None) -> None:
    """Install the package on no further devices; those that have it keep it, and limits still apply.

    Exit code 4: the roll-out has ended.
    """
    with reported_errors(), _client(server, token_file) as client:
        _show(client.pause(rollout))


def resume(rollout: RolloutArgument, server: ServerOption, token_file: TokenFile = None) -> None:
    """Continue a paused roll-out; the minimum time of its stage starts again.

    Exit code 4: the roll-out has ended.
    """
    with reported_errors(), _client(server, token_file) as client:
        _show(client.resume(rollout))


def back(rollout: RolloutArgument, server: ServerOption, token_file: TokenFile = None) -> None:
    """End a roll-out, even one that is done: its devices return to their previous package.

    Exit code 4: it was stopped already, or a later roll-out has replaced its package.
    """
    with reported_errors(), _client(server, token_file) as client:
        _show(client.roll_back(rollout))


def _client(server: str, token_file: Path | None) -> RolloutsClient:
    return RolloutsClient(server, read_token(token_file), backoff=announcing_backoff(server))


def _read(parse: Any, text: str, option: str, problems: list[Problem]) -> float:
    """Return the value of an option; if it is invalid, add a problem."""
    try:
        return float(parse(text))
    except InvalidValue as error:
        problems.append(error.problem(option))
        return 0.0


def _share(text: str) -> float:
    return 0.0 if text in ("0", "0%") else parse_figure(text)


def _ratio(text: str) -> float:
    """Return a multiple such as "1.2x"."""
    quantity = parse_time(text)
    if not quantity.relative:
        raise InvalidValue(text, 'a multiple of the latency before, such as "1.2x"', "write it with an x")
    return quantity.value


def _plain(progress: RolloutProgress) -> Any:
    return _PROGRESS.dump_python(progress, mode="json")


def _table(newest: Sequence[RolloutProgress]) -> Table:
    """Return the table of roll-outs."""
    table = plain_table("roll-out", "goal", "to", "state", "stage", "have it", "failed")
    table.columns[0].no_wrap = True  # for the next command
    for progress in newest:
        rollout, stages = progress.rollout, progress.stages
        table.add_row(
            rollout.id,
            rollout.goal_id,
            _target(rollout),
            rollout.state.value,
            format_share(rollout.stages[rollout.stage], _DIGITS),
            f"{sum(each.installed for each in stages):,}/{sum(each.devices for each in stages):,}",
            f"{sum(each.failed for each in stages):,}",
        )
    return table


def _target(rollout: Rollout) -> str:
    """Return the target of a roll-out as in `--to`."""
    return rollout.package if rollout.devices == EVERY_DEVICE else f"{rollout.package}/{rollout.devices}"


def _show(progress: RolloutProgress) -> None:
    """Print a roll-out with its stages, figures and limits."""
    console = Console()
    for line in _lines(progress):
        print_line(console, line)
    table = plain_table("stage", "devices", "installed", "installing", "failed")
    for stage in progress.stages:
        counts = (stage.devices, stage.installed, stage.installing, stage.failed)
        table.add_row(format_share(stage.share, _DIGITS), *(f"{count:,}" for count in counts))
    console.print(table)


def _lines(progress: RolloutProgress) -> Iterator[str]:
    rollout, figures = progress.rollout, progress.figures
    limits = rollout.criteria
    share = format_share(rollout.stages[rollout.stage], _DIGITS)
    yield (
        f"roll-out {rollout.id} of {rollout.goal_id} (job {rollout.job_id}) in place of {rollout.package} on "
        f"{'all devices' if rollout.devices == EVERY_DEVICE else rollout.devices}"
    )
    since = moment(rollout.since_unix_ms, "seconds")
    yield f"{rollout.state}, stage {share}, since {since}: {rollout.reason}"
    if rollout.state is RolloutState.RUNNING:
        least = moment(rollout.since_unix_ms + 1000 * limits.after_seconds, "seconds")
        needed = counted(limits.devices, "device")
        yield f"this stage lasts until {least} at least, and until {needed} of it reported"
    if not rollout.state.in_force:
        yield f"{counted(progress.running, 'device')} still on its package"
    if rollout.state.under_way and not any(stage.devices for stage in progress.stages):
        yield (
            "no such device has reported yet; devices need [fleet.rollouts] with "
            f'package = "{rollout.package}" in their monitor.toml'
        )
    yield f"errors: {_shown_share(figures.errors)}, limit {format_share(limits.errors, _DIGITS)}"
    yield (
        f"latency relative to that before: {_shown_ratio(figures.latency)}, "
        f"limit {_shown_ratio(limits.latency, _NONE)}"
    )
    yield (
        f"agreement with the package before: {_shown_share(figures.agreement)}, "
        f"limit {_shown_share(limits.agreement, _NONE)}"
    )


def _shown_share(share: float | None, unknown: str = "unknown") -> str:
    return unknown if share is None else format_share(share, _DIGITS)


def _shown_ratio(ratio: float | None, unknown: str = "unknown") -> str:
    return unknown if ratio is None else f"{ratio:.{_DIGITS}g}x"
