"""The commands of slices: `mistify customize` and `mistify tasks`."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mistify.errors import invalid_config
from mistify.package.factory import FactoryStore
from mistify.package.manifest import Manifest
from mistify.parsing.quantities import Quantity, format_bytes, format_time, parse_bytes, parse_time
from mistify.parsing.validation import InvalidValue
from mistify.tables import plain_table
from mistify_client.cli.errors import reported_errors
from mistify_client.cli.options import PackageOption, ThreadsOption
from mistify_client.porting.printing import print_line
from mistify_client.runtime.trust import require_trusted
from mistify_client.runtime.versions import current
from mistify_client.slicing.customizing import Customization, SliceRequest, customize, factory_of

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands to a command line."""
    app.command(name="customize")(customize_package)
    app.command(name="tasks")(list_tasks)


def customize_package(
    package: PackageOption,
    task: Annotated[
        str,
        typer.Option(
            metavar="TASK",
            help='Properties such as "exactly:2,odd", the name of a task, or classes such as "cat,dog".',
        ),
    ],
    *,
    latency: Annotated[
        str | None, typer.Option(metavar="TIME", help='Such as "3ms", or "0.3x" of the whole network\'s.')
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="BYTES", help='Such as "200KB", or "0.4x" of the whole network\'s.')
    ] = None,
    limit: Annotated[float, typer.Option(help="The largest share of units that may be open.")] = 1.0,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=".npz file with arrays named like the inputs and outputs, whose answers are to the task. "
            "Default: the scores of trained tasks decide.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Directory for a package of its own. Default: the package's current version."
        ),
    ] = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cut a network for a task out of a package, the best one within a latency and a memory.

    It takes no training and no server. The network is measured on this device before it is installed; models
    that run the package take it over. If anything fails, what ran before goes on running. Exit code 2: there
    is no such task, or no network is as small; 3: the package has no assembler; 4: another process
    customizes the package.
    """
    with reported_errors():
        require_trusted(package)
        request = SliceRequest(
            task=task,
            latency=_quantity("--latency", latency),
            memory=_quantity("--memory", memory),
            limit=limit,
            data=data,
        )
        on_progress = partial(print_line, Console(stderr=True))
        result = customize(package, request, out=out, threads=threads, on_progress=on_progress)
        if as_json:
            typer.echo(json.dumps(_as_json(result), indent=2))
            return
        for line in _summary(result, installed=out is None):
            print_line(Console(), line)


def list_tasks(package: PackageOption, *, as_json: JsonOption = False) -> None:
    """List what a package can be asked for: properties, and the accuracy of trained tasks within each limit.

    A limit is the largest share of units that may be open. Other tasks of the same properties can be asked
    for as well. Exit code 3: the package has no assembler.
    """
    with reported_errors():
        _, store = factory_of(package)
        task = Manifest.load(current(package)).task
        serves = None if task is None else store.listed_as(store.asked(task.properties or task.classes))
        if as_json:
            typer.echo(json.dumps(_tasks_as_json(store, serves), indent=2))
            return
        for line in _vocabulary(store):
            print_line(Console(), line)
        Console().print(_table(store, serves))


def _quantity(option: str, text: str | None) -> Quantity | None:
    if text is None:
        return None
    try:
        return parse_time(text) if option == "--latency" else parse_bytes(text)
    except InvalidValue as error:
        raise invalid_config([error.problem(option)], "the command line") from error


def _summary(result: Customization, *, installed: bool) -> Iterator[str]:
    made, limits = result.made, result.limits
    latency, memory = format_time(made.latency.median_ms, 3), format_bytes(made.memory_bytes, 3)
    if limits.latency_ms is not None:
        latency += f" of at most {format_time(limits.latency_ms, 3)}"
    if limits.memory_bytes is not None:
        memory += f" of at most {format_bytes(limits.memory_bytes, 3)}"
    accuracy = f"accuracy {made.candidate.quality:.1%}"
    accuracy += f" on {result.examples:,} examples" if result.examples else " expected"
    yield f"{result.task}: {latency}, {memory}, {result.share:.0%} of the units, {accuracy}"
    if result.note:
        yield f"note: {result.note}"
    yield f"{'installed' if installed else 'written'}: {result.directory}"


def _as_json(result: Customization) -> dict[str, Any]:
    made = result.made
    return {
        "task": result.task.config.model_dump(mode="json"),
        "latency_ms": made.latency.median_ms,
        "most_latency_ms": result.limits.latency_ms,
        "memory_bytes": made.memory_bytes,
        "most_memory_bytes": result.limits.memory_bytes,
        "limit": made.candidate.limit,
        "open_share": result.share,
        "accuracy": made.candidate.quality,
        "accuracy_examples": result.examples,
        "note": result.note,
        "directory": str(result.directory),
    }


def _tasks_as_json(store: FactoryStore, serves: str | None) -> dict[str, Any]:
    space, quality = store.space, store.quality
    return {
        "properties": space.axes,
        "names": space.names,
        "classes": store.classes,
        "serves": serves,
        "limits": quality.limits,
        "expected": [quality.expected(limit) for limit in quality.limits],
        "tasks": dict(zip(quality.tasks, quality.scores, strict=True)),
    }


def _vocabulary(store: FactoryStore) -> Iterator[str]:
    """Yield the properties that a task may name."""
    for axis, values in store.space.axes.items():
        names = store.classes or values
        words = (
            each if each == name else f'{each} "{name}"' for each, name in zip(values, names, strict=True)
        )
        yield f"{axis}: {', '.join(words)}"
    for name, values in store.space.names.items():
        yield f"{name}: stands for {', '.join(values)}"


def _table(store: FactoryStore, serves: str | None) -> Table:
    """Return the accuracy of each trained task by limit, and their mean; the one that is served is marked."""
    quality = store.quality
    limits = quality.listed_limits()
    table = plain_table("", "task", *(f"at {limit:.3g}" for limit in limits))
    for task in quality.tasks:
        scores = (quality.score(task, limit) or 0.0 for limit in limits)
        table.add_row("*" if task == serves else "", task, *(f"{score:.1%}" for score in scores))
    table.add_row("", "mean", *(f"{quality.expected(limit):.1%}" for limit in limits))
    return table
