"""Versions that a device has derived from another one of a package: adapted to its data, or tuned on them.

The directory of such a version has a link to the one that it was derived from, its base, so that the package
also keeps the version that ran before the base.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mistify_client.runtime.links import link_target, set_link

#: Name of the link in the directory of a version.
_BASE: Final = "derived_from"


def base_of(version: Path) -> Path | None:
    """Return the installed version that another one was derived from; None if there is none."""
    try:
        base = version.with_name(Path(link_target(version / _BASE)).name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return base if base.is_dir() else None


def with_bases(version: Path) -> Iterator[Path]:
    """Yield a version, and each installed one that it was derived from."""
    yield version
    if (base := base_of(version)) is not None:
        yield from with_bases(base)


def note_base(version: Path, base: Path) -> None:
    """Note the installed version that a new one was derived from.

    Those between the base and the first one are forgotten, so that there are at most three in a row.
    """
    first = [*with_bases(base)][-1]
    if first not in (base, base_of(base)):
        set_link(base / _BASE, Path("..") / first.name)
    set_link(version / _BASE, Path("..") / base.name)
