"""The commands of versions: `mistify versions` and `mistify rollback`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mistify.package.adaptation import ADAPTATION, AdaptationStore
from mistify.package.manifest import Manifest
from mistify.package.opened import Package
from mistify.tables import plain_table
from mistify_client.cli.errors import reported_errors
from mistify_client.cli.options import PackageOption
from mistify_client.porting.printing import print_line
from mistify_client.runtime.versions import current, previous, roll_back


def register(app: typer.Typer) -> None:
    """Add the commands to a command line."""
    app.command(name="versions")(list_versions)
    app.command(name="rollback")(restore)


def list_versions(
    package: PackageOption, *, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """List the versions of a package on this device: the current one, the previous one, and the shipped one.

    Exit code 3: there is no such package.
    """
    with reported_errors():
        versions = list(_versions(package))
        if as_json:
            typer.echo(json.dumps({"versions": versions}, indent=2))
            return
        console, columns = Console(), [name for name in versions[0] if name != "directory"]
        table = plain_table(*columns)
        for each in versions:
            table.add_row(*(each[name] for name in columns))
        console.print(table)
        for each in versions:  # below the table, so that long paths stay whole
            print_line(console, f"{each['version']}: {each['directory']}")


def restore(package: PackageOption) -> None:
    """Make the previous version of a package the current one; a second time, the package as it was shipped.

    Models that run it switch to it. Exit code 3: nothing was installed, or everything is rolled back.
    """
    with reported_errors():
        Manifest.load(package)
        before = current(package)
        roll_back(package)
        print_line(Console(), f"current: {current(package)}, instead of {before}")


def _versions(package: Path) -> Iterator[dict[str, str]]:
    """Yield what is known of each version, each version once."""
    shipped = Package.open(package).directory
    names: dict[Path, list[str]] = {}
    for name, directory in (
        ("current", current(package)),
        ("previous", previous(package)),
        ("shipped", package),
    ):
        names.setdefault(directory, []).append(name)
    if current(package) == package:
        names[package].remove("previous")
    for directory, parts in names.items():
        version = Package.open(directory)
        manifest = version.manifest
        yield {
            "version": ", ".join(parts),
            "made": manifest.created.isoformat(timespec="seconds"),
            "origin": _origin(version, is_shipped=directory == shipped),
            "job": manifest.job,
            "goal": manifest.goal,
            "directory": str(directory),
        }


def _origin(version: Package, *, is_shipped: bool) -> str:
    if version.manifest.tuned_from is not None:
        return "tuned"
    if ADAPTATION in version.manifest.files and AdaptationStore.of(version).adapted_from is not None:
        return "adapted"
    return "shipped" if is_shipped else "installed"
