"""`python -m docs_site.docstrings` lists entries of docstrings that say nothing or are no sentences."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDERS: Final = ("mistify", "executors", "mistify_server", "mistify_client", "benchmarks", "docs_site")

#: Made by protoc.
GENERATED: Final = Path("mistify/v1")

#: A first word that only leans on the name before it: "network: Of the goal."
_EMPTY_FIRST_WORD: Final = re.compile(
    r"(As|Has|Is|It|Likewise|Of|That|There|They|Those|To|What|Which|Whose)\b"
)

#: Words that add nothing to a name: "model: The model."
_FILLERS: Final = frozenset(("a", "all", "an", "each", "its", "of", "the"))

_HEADER: Final = re.compile(r"(Args|Attributes|Raises|Returns|Yields):")
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Entry:
    """An entry of a section of a docstring.

    Attributes:
        line: Counted from 1.
        section: "Args", "Attributes", "Raises", "Returns" or "Yields".
        name: Empty below "Returns" and "Yields", which have one entry.
        text: All lines after the name, joined by spaces.
    """

    line: int
    section: str
    name: str
    text: str

    def faults(self) -> Iterator[str]:
        """Yield whatever is wrong with the text."""
        if self.section != "Raises" and (first := _EMPTY_FIRST_WORD.match(self.text)):
            yield f'begins with "{first[0]}": say the meaning, shape, unit or range, or leave the entry out'
        if self.name and set(re.findall(r"\w+", self.text.lower())) - _FILLERS <= set(self.name.split("_")):
            yield "only repeats its name: say more, or leave the entry out"
        if self.text[:1].islower():
            yield "begins with a lower-case letter"
        if not self.text.endswith("."):
            yield "does not end with a full stop"


def main() -> int:
    """Print the faults in all folders, and return 1 if there are any."""
    files = (file for folder in FOLDERS for file in sorted(Path(folder).rglob("*.py")))
    faults = list(faults_in(file for file in files if GENERATED not in file.parents))
    print("\n".join([*faults, f"{len(faults)} faults in docstrings"]))
    return bool(faults)


def faults_in(files: Iterable[Path]) -> Iterator[str]:
    """Yield `FILE:LINE: NAME FAULT` for every fault."""
    for file in files:
        for entry in sorted(entries(file.read_text(encoding="utf-8")), key=lambda entry: entry.line):
            for fault in entry.faults():
                yield f"{file}:{entry.line}: {entry.name or entry.section} {fault}"


def entries(source: str) -> Iterator[Entry]:
    """Yield the entries in all docstrings of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and (docstring := ast.get_docstring(node, clean=False)):
            yield from _entries(node.body[0].lineno, docstring.splitlines())


def _entries(first_line: int, lines: list[str]) -> Iterator[Entry]:
    section, margin = "", 0
    begun: Entry | None = None
    for number, line in enumerate(lines, first_line):
        text, indent = line.strip(), len(line) - len(line.lstrip())
        continues = begun is not None and indent > margin + (0 if begun.name == "" else 4)
        if begun is not None and text and continues:
            begun = Entry(begun.line, section, begun.name, f"{begun.text} {text}".strip())
            continue
        if not text:
            continue
        if begun is not None:
            yield begun
            begun = None
        if header := _HEADER.fullmatch(text):
            section, margin = header[1], indent
        elif section and indent > margin:
            name, _, text = ("", "", text) if section in ("Returns", "Yields") else text.partition(":")
            begun = Entry(number, section, name, text.strip())
        else:
            section = ""
    if begun is not None:
        yield begun


if __name__ == "__main__":
    sys.exit(main())
