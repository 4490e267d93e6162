"""Hooks for mkdocs: generated pages, and links adapted to the site."""

import re
import sys
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from typer.cli import get_docs_for_click

REPOSITORY: Final = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY))  # mkdocs loads this file by its path

from docs_site import settings  # noqa: E402
from docs_site.links import COMMANDS, COPIED, ELSEWHERE, EXAMPLES, SETTINGS, relinked  # noqa: E402
from docs_site.results import with_missed_targets  # noqa: E402
from mistify_client.cli import main as client  # noqa: E402
from mistify_server import cli as server  # noqa: E402

_MERMAID: Final = "assets/mermaid.js"

#: The list of commands in the help of each group, which the page's table of contents replaces.
_INDEX: Final = re.compile(r"^\*\*Commands\*\*:\n\n(?:\* .*\n)+\n?", re.MULTILINE)

_LANGUAGES: Final = {".py": "python", ".toml": "toml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add files from elsewhere in the repository, and generated pages."""
    made = {
        SETTINGS: settings.page(),
        COMMANDS: _commands(),
        **{f"{place.relative_to(REPOSITORY / 'docs')}.md": _example(place) for place in _examples()},
    }
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    for own, path in ELSEWHERE.items():
        files.append(File.generated(config, path, abs_src_path=str(REPOSITORY / own)))
    for directory, copy in COPIED.items():
        for file in sorted((REPOSITORY / directory).iterdir()):
            files.append(File.generated(config, f"{copy}/{file.name}", abs_src_path=str(file)))
    files.append(File.generated(config, _MERMAID, content=_mermaid()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adapt links to the site, and insert the list of missed targets and the diagram library."""
    markdown = with_missed_targets(markdown)
    if "```mermaid" in markdown:
        script = get_relative_url(_MERMAID, page.file.url)
        markdown = f'{markdown}\n\n<script src="{script}"></script>\n'
    return relinked(markdown, page.file.src_uri)


def _commands() -> str:
    """Return the reference of both command lines, generated from their help."""
    parts = [
        "# Commands",
        "The `--help` text of each command. All commands use the same [exit codes](../server.md#exit-codes).",
    ]
    for name, app in (("mistify", client.app), ("mistify-server", server.app)):
        command = typer.main.get_command(app)
        docs = get_docs_for_click(obj=command, ctx=typer.Context(command), name=name)
        parts.append(re.sub(r"^#", "##", _INDEX.sub("", docs), flags=re.MULTILINE))
    return "\n\n".join(parts)


def _examples() -> list[Path]:
    return sorted(path for path in (REPOSITORY / EXAMPLES).iterdir() if path.is_dir())


def _example(directory: Path) -> str:
    """Return a page with the files of an example."""
    sources = (file for file in sorted(directory.iterdir()) if file.suffix in _LANGUAGES)
    blocks = (f'```{_LANGUAGES[file.suffix]} title="{file.name}"\n{file.read_text()}```' for file in sources)
    return "\n\n".join([f"# docs/examples/{directory.name}", *blocks]) + "\n"


def _mermaid() -> bytes:
    """Return the diagram library, which the theme would otherwise download from the Internet."""
    with as_file(files("mermaidx") / "assets" / "mermaid.js") as path:
        return path.read_bytes()
