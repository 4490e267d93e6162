"""The targets of benchmarks that are missed, from the headlines of the results."""

import re
from typing import Final

#: The place in a page where they are listed.
MARK: Final = "<!-- missed targets -->"

_ROW: Final = re.compile(
    r"^\| (?P<benchmark>\w*) ?"
    r"\| (?P<what>[^|]+) \| (?P<measured>[^|]+) \| (?P<target>[^|]+) \| (?P<verdict>[^|]+) \|",
    re.MULTILINE,
)


def missed_targets(results: str) -> str:
    """Return a table of the headlines whose targets are missed, grouped by benchmark.

    Args:
        results: Markdown.
    """
    headlines = results.partition("## Headlines")[2].partition("\n## ")[0]
    rows, benchmark = [], ""
    for row in _ROW.finditer(headlines):
        benchmark = row["benchmark"] or benchmark
        if row["verdict"].strip() not in ("met", ""):
            cells = (row[name].strip() for name in ("what", "measured", "target", "verdict"))
            rows.append(f"| {benchmark} | {' | '.join(cells)} |")
    return "\n".join(
        ["| benchmark | what | measured | target | |", "| --- | --- | ---: | ---: | --- |", *rows]
    )
