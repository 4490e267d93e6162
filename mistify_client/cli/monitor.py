"""The commands of the monitor: `mistify monitor`, `status` and `target`."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mistify.config.data.metric import Metric
from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import locked
from mistify.package.manifest import Manifest
from mistify_client.cli.errors import reported_errors
from mistify_client.cli.options import PackageOption
from mistify_client.monitor.config import MonitorConfig, load_config, read_config
from mistify_client.monitor.daemon import Monitor, run
from mistify_client.monitor.signals import signal_waiter
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.monitor.state.targets import (
    Targets,
    check_accuracy,
    parse_changes,
    read_changes,
    write_changes,
)
from mistify_client.monitor.status import lines, upgraded
from mistify_client.monitor.traces.lines import Options
from mistify_client.monitor.traces.reading import read_trace
from mistify_client.monitor.traces.replay import replayed
from mistify_client.monitor.traces.summary import Comparison
from mistify_client.monitor.traces.writing import TraceWriter
from mistify_client.runtime.versions import current


def register(app: typer.Typer) -> None:
    """Add the commands to a command line."""
    for command in (monitor, status, target):
        app.command()(command)


def monitor(
    config: Annotated[Path, typer.Option(metavar="MONITOR.TOML", help="Targets and settings.")],
    *,
    package: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory of the package; not needed with --replay.")
    ] = None,
    server: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Default: the config's.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Decide once, then exit.")] = False,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append conditions and decisions to this file.")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Show how the config decides under the recorded conditions."),
    ] = None,
) -> None:
    """Keep a package within its targets while conditions change, until SIGTERM or Ctrl-C.

    SIGHUP reloads the config. Exit code 4: the package already has a monitor.
    """
    with reported_errors():
        if replay is not None:
            if package is not None or server is not None or once or record is not None:
                raise _wrong_options("--replay needs only --config: leave out the other options")
            _replay(replay, config)
        elif package is None:
            raise _wrong_options("--package names the package; only --replay does without")
        else:
            _monitor(package, partial(_settings, package, config, server), record, once=once)


def _monitor(
    package: Path, settings: Callable[[], MonitorConfig], record: Path | None, *, once: bool
) -> None:
    with signal_waiter() as wait:
        state = MonitorState.of(package)
        settings()
        with state.held():
            trace = None if record is None else TraceWriter(record)
            journal = Journal(state.log)
            watched = Monitor(package, settings, journal, trace=trace)
            journal.note("started", f"monitoring {package}")
            if once:
                watched.step()
                watched.close()
            else:
                run(watched, journal, wait)


def _replay(trace: Path, config: Path) -> None:
    """Print the decisions of a config under the conditions of a trace."""
    settings = read_config(config)
    first = next(line for line in read_trace(trace) if isinstance(line, Options))
    check_accuracy(settings.targets, first.options[0].score.metric, str(config))
    steps = replayed(read_trace(trace), settings.make_policy, settings.targets)
    for line in Comparison().lines(steps):
        typer.echo(line)


def _wrong_options(message: str) -> MistifyError:
    return MistifyError(ErrorCode.INVALID_CONFIG, message)


def status(
    package: PackageOption,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the state of a package's monitor, with the reason for its last decision."""
    with reported_errors():
        state = MonitorState.of(package)
        start = f"start one with mistify monitor --package {package} --config monitor.toml"
        try:
            content = upgraded({**json.loads(state.status.read_bytes()), "running": state.is_held})
            shown = "\n".join(lines(content))
        except FileNotFoundError as error:
            raise MistifyError(ErrorCode.NOT_FOUND, f"no monitor has run for {package}; {start}") from error
        # For example after a power cut.
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise MistifyError(
                ErrorCode.NOT_FOUND,
                f"{state.status} is not the status of a monitor; a running one rewrites it, else {start}",
            ) from error
        typer.echo(json.dumps(content, indent=2) if as_json else shown)


def target(
    assignments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=VALUE]...",
            help="latency, accuracy, memory or energy; the value none removes a target.",
        ),
    ] = None,
    *,
    package: PackageOption,
    reset: Annotated[bool, typer.Option("--reset", help="Return to the targets of the config.")] = False,
) -> None:
    """Change the targets of a package, even while its monitor runs, and show the changes.

    For example: mistify target latency=20ms --package DIR
    """
    with reported_errors("nothing was changed"):
        state = MonitorState.of(package)
        assigned = parse_changes(assignments or [])
        writes = reset or bool(assigned)
        if writes:
            state.directory.mkdir(parents=True, exist_ok=True)
        with locked(state.directory) if writes else nullcontext():  # others may change targets as well
            changes = ({} if reset else read_changes(state.targets)) | assigned
            changed = Targets.model_validate(changes)
            check_accuracy(changed, _metric(package), "the targets")
            if writes:
                write_changes(state.targets, changes)
        for name, value in changed.model_dump(mode="json", include=set(changes)).items():
            typer.echo(f"{name}: {value or 'none'}")
        if not changes:
            typer.echo("as in the config")


def _settings(package: Path, config: Path, server: str | None) -> MonitorConfig:
    """Return the config of a package's monitor."""
    settings = load_config(config, server)
    check_accuracy(settings.targets, _metric(package), str(config))
    return settings


def _metric(package: Path) -> Metric:
    return Manifest.load(current(package)).metric
