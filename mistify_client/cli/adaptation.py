"""The command `mistify adaptation`: state and history of the adaptation to data without labels."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from mistify.adaptation.adapter import LEAST_SPREAD
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify_client.adapting.installing import adaptable_version, remove_adaptation
from mistify_client.adapting.storage import AdaptationState, AdaptationStorage
from mistify_client.cli.errors import reported_errors
from mistify_client.cli.options import PackageOption
from mistify_client.porting.printing import print_line


def register(app: typer.Typer) -> None:
    """Add the command to a command line."""
    app.command()(adaptation)


def adaptation(
    package: PackageOption,
    *,
    reset: Annotated[
        bool, typer.Option("--reset", help="Restore the network as it was, and forget the statistics.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how a package is adapted to the data of its place without labels.

    A monitor adapts it, if its config has a table [adaptation]. A shift of 1 is as far as a single class of
    the data moves the statistics of the network; it is adapted from 1.5, and restored below 1.
    """
    with reported_errors():
        Manifest.load(package)
        storage = AdaptationStorage(package)
        if reset:
            _reset(package, storage)
        refusal = _refusal(package)
        state = None if refusal else storage.state()
        history = storage.history()
        if as_json:
            typer.echo(json.dumps(_as_json(refusal, state, history), indent=2))
            return
        for line in _lines(refusal, state, history):
            print_line(Console(), line)


def _reset(package: Path, storage: AdaptationStorage) -> None:
    storage.forget()
    remove_adaptation(package)
    storage.note("reset", "by mistify adaptation --reset")


def _refusal(package: Path) -> str:
    """Return why the current version cannot be adapted; empty if it can."""
    try:
        adaptable_version(package)
    except MistifyError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return str(error)
        raise
    return ""


def _as_json(refusal: str, state: AdaptationState | None, history: list[dict[str, Any]]) -> dict[str, Any]:
    described = None if state is None else state.model_dump()
    return {"problem": refusal or None, "state": described, "history": history}


def _lines(refusal: str, state: AdaptationState | None, history: list[dict[str, Any]]) -> Iterator[str]:
    if refusal:
        yield refusal
    elif state is None:
        yield 'no statistics yet: they need a monitor whose config has a table "[adaptation]"'
    else:
        yield f"{'adapted' if state.adapted else 'as shipped'}, shift {state.shift:.2f} ({state.time})"
        yield f"{state.examples:,} examples, {state.updates:,} updates, spread of classes {state.spread:.0%}"
        if state.examples and state.spread < LEAST_SPREAD:
            least = f"nothing is learned below a spread of {LEAST_SPREAD:.0%}"
            yield f"{least}: the recent predictions are of too few classes"
    for entry in history:
        shift = f" (shift {entry['shift']:.2f})" if "shift" in entry else ""
        yield f"{entry.get('time', '')} {entry.get('event', '')}: {entry.get('reason', '')}{shift}"
