"""Paths of repository files on the site, and the adaptation of links to them."""

import posixpath
import re
from collections.abc import Mapping
from typing import Final

#: Pages of the site whose files in the repository are not below `docs/`.
ELSEWHERE: Final[Mapping[str, str]] = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "results.md",
}

#: Pages that are generated when the site is built.
SETTINGS: Final = "reference/settings.md"
COMMANDS: Final = "reference/commands.md"

#: Directories that are copied unchanged.
COPIED: Final[Mapping[str, str]] = {"benchmarks/pictures": "results", "configs": "configs"}

#: Directory of examples; each becomes a page with its files.
EXAMPLES: Final = "docs/examples/"

_LINK: Final = re.compile(r"(?<=\]\()(?P<path>[^()\s#:]+)(?=[#)])")
_REPOSITORY: Final = {site: own for own, site in ELSEWHERE.items()}


def in_repository(page: str) -> str:
    """Return the repository path of a page of the site."""
    return _REPOSITORY.get(page, f"docs/{page}")


def on_site(path: str) -> str | None:
    """Return the site path of a repository file, or None if it is not on the site."""
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    if path.startswith(EXAMPLES) and path.count("/") == EXAMPLES.count("/"):
        return f"{path.removeprefix('docs/')}.md"
    for directory, copy in COPIED.items():
        if path.startswith(f"{directory}/"):
            return copy + path.removeprefix(directory)
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def relinked(markdown: str, page: str) -> str:
    """Return the text of a page with its links changed from repository paths to site paths.

    A link to a missing file is left unchanged, so that mkdocs reports it.

    Args:
        page: Path of the page on the site.
    """
    here, directory = posixpath.dirname(page), posixpath.dirname(in_repository(page))

    def moved(link: re.Match[str]) -> str:
        target = on_site(posixpath.normpath(posixpath.join(directory, link["path"])))
        return link["path"] if target is None else posixpath.relpath(target, here or ".")

    return _LINK.sub(moved, markdown)
