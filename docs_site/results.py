"""The list of missed targets on a page of the site."""

from typing import Final

from benchmarks.harness.records import read_records
from benchmarks.results.page import missed_targets

MARK: Final = "<!-- missed targets -->"


def with_missed_targets(markdown: str) -> str:
    """Return a page with its mark replaced by the missed targets."""
    return markdown.replace(MARK, missed_targets(read_records())) if MARK in markdown else markdown
