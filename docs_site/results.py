"""The place in a page of the site where the targets that benchmarks miss are listed."""

from typing import Final

from benchmarks.harness.records import read_records
from benchmarks.results.page import missed_targets

MARK: Final = "<!-- missed targets -->"


def with_missed_targets(markdown: str) -> str:
    """Return a page with the targets that are missed, where it has the mark."""
    return markdown.replace(MARK, missed_targets(read_records())) if MARK in markdown else markdown
