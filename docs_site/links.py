"""Where the files of the repository are on the site, and its links made to lead there."""

import posixpath
import re
from collections.abc import Mapping
from typing import Final

#: Pages and files of the site that lie elsewhere in the repository than below `docs/`.
ELSEWHERE: Final[Mapping[str, str]] = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "results.md",
}

#: Pages of the site that are made when it is built.
SETTINGS: Final = "reference/settings.md"
COMMANDS: Final = "reference/commands.md"

#: Directories that are copied as they are.
COPIED: Final[Mapping[str, str]] = {"benchmarks/pictures": "results", "configs": "configs"}

#: Directories of examples: on the site each is a page with its files.
EXAMPLES: Final = "docs/examples/"

_LINK: Final = re.compile(r"(?<=\]\()(?P<path>[^()\s#:]+)(?=[#)])")
_REPOSITORY: Final = {site: own for own, site in ELSEWHERE.items()}


def in_repository(page: str) -> str:
    """Return the path in the repository of a page of the site."""
    return _REPOSITORY.get(page, f"docs/{page}")


def on_site(path: str) -> str | None:
    """Return the path on the site of a file of the repository; None where the site does not have it."""
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    if path.startswith(EXAMPLES) and path.count("/") == EXAMPLES.count("/"):
        return f"{path.removeprefix('docs/')}.md"
    for directory, copy in COPIED.items():
        if path.startswith(f"{directory}/"):
            return copy + path.removeprefix(directory)
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def relinked(markdown: str, page: str) -> str:
    """Return the text of a page whose links lead to where files of the repository are on the site.

    A link to a missing file is left unchanged, so that mkdocs reports it.

    Args:
        page: Path of the page on the site.
    """
    here, directory = posixpath.dirname(page), posixpath.dirname(in_repository(page))

    def moved(link: re.Match[str]) -> str:
        target = on_site(posixpath.normpath(posixpath.join(directory, link["path"])))
        return link["path"] if target is None else posixpath.relpath(target, here or ".")

    return _LINK.sub(moved, markdown)
