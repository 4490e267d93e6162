"""The page of results, one row for each target."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from benchmarks.harness.records import REPOSITORY, Judged, Record

RESULTS: Final = REPOSITORY / "benchmarks" / "RESULTS.md"

_INTRODUCTION: Final = """# Results

`python -m benchmarks.results` makes this page from the latest record of each benchmark in
`benchmarks/records/`, which has all figures of a run, and where it ran. What was tried, and what came of
it, is in [the decisions](../docs/decisions/index.md). The file of each benchmark, as
`benchmarks/porting/limits.py` for `porting.limits`, says what it measures; `benchmarks/harness/run.py`
has the rules for all. Records of before 2026-11-28 were transcribed from this page as it was then; their
commands are those of their commits.
"""

_HEAD: Final = ("| target | value | asked | status | commit |", "| --- | ---: | ---: | --- | --- |")


class Row(NamedTuple):
    """A target with the latest record that has it."""

    name: str
    target: Judged
    record: Record

    @property
    def what(self) -> str:
        """The figure in words."""
        return self.target.what or self.name.replace("_", " ")

    @property
    def value(self) -> str:
        """The figure, short."""
        figure = self.record.figures.get(self.name)
        return "" if figure is None else shown(figure)

    @property
    def asked(self) -> str:
        """The bounds in words."""
        bounds = (("at least", self.target.min), ("at most", self.target.max))
        return ", ".join(f"{word} {shown(bound)}" for word, bound in bounds if bound is not None)

    @property
    def status(self) -> str:
        """Whether it is met, and by a quick run alone."""
        if self.name not in self.record.figures:
            return "not measured"
        return ("met" if self.target.met else "missed") + (" (quick run)" if self.record.quick else "")


def page(records: Sequence[Record]) -> str:
    """Return RESULTS.md.

    Args:
        records: The oldest first.
    """
    rows = rows_of(records)
    counts = {
        status: sum(row.status.startswith(status) for row in rows) for status in ("met", "missed", "not")
    }
    summary = (
        f"Of {len(rows)} targets {counts['met']} are met, {counts['missed']} are missed and {counts['not']} "
        "have not been measured as they are defined now.\n"
    )
    parts = [_INTRODUCTION, summary]
    for group, in_group in groupby(rows, lambda row: row.record.benchmark.partition(".")[0]):
        parts.append(f"## {group}\n")
        for benchmark, own in groupby(in_group, lambda row: row.record.benchmark):
            parts.append(_section(benchmark, list(own)))
    return "\n".join(parts)


def missed_targets(records: Sequence[Record]) -> str:
    """Return a table of the targets that are missed."""
    missed = (row for row in rows_of(records) if row.status.startswith("missed"))
    cells = (f"| {row.record.benchmark} | {row.what} | {row.value} | {row.asked} |" for row in missed)
    return "\n".join(["| benchmark | target | value | asked |", "| --- | --- | ---: | ---: |", *cells])


def rows_of(records: Sequence[Record]) -> list[Row]:
    """Return the rows, sorted by benchmark: of each network the targets of the latest record.

    A quick run counts only for what no full one has measured.
    """
    latest = {(record.benchmark, record.network, record.quick): record for record in records}
    fulls = {benchmark for benchmark, _, quick in latest if not quick}
    rows: dict[tuple[str, str], Row] = {}
    for record in sorted(latest.values(), key=lambda record: record.quick):
        for name, target in record.targets.items():
            row = rows.get((record.benchmark, name))
            if row is None and record.quick and record.benchmark in fulls:
                continue  # a target of a definition that is gone
            if row is None or (name in record.figures and name not in row.record.figures):
                rows[record.benchmark, name] = Row(name, target, record)
    return sorted(rows.values(), key=lambda row: row.record.benchmark)


def shown(figure: float) -> str:
    """Return a figure with three digits, or all of an integer's."""
    return f"{figure:,.0f}" if abs(figure) >= 1_000 else f"{figure:.3g}"


def _section(benchmark: str, rows: Sequence[Row]) -> str:
    records = {record.file_name: record for record in (row.record for row in rows)}
    table = [
        f"| {row.what} | {row.value} | {row.asked} | {row.status} | {_commit(row.record)} |" for row in rows
    ]
    runs = [f"- {_run(record)}" for record in records.values()]
    pictures = [
        f"\n![{benchmark}](pictures/{record.picture})" for record in records.values() if record.picture
    ]
    head = [f"### {benchmark}\n", *_HEAD]
    return "\n".join([*head, *table, "", *runs, *pictures, ""])


def _commit(record: Record) -> str:
    return record.commit or "unknown"


def _run(record: Record) -> str:
    """Return how a record was made, in one line."""
    command = f"`{record.command}`" if record.command else "command unknown"
    where = record.machine.get("processor")
    facts = [
        f"commit {_commit(record)}",
        (record.date or "date unknown")[:10],
        *([str(where)] if where else []),
    ]
    seeds = [f"seeds {', '.join(map(str, record.seeds))}"] if record.seeds else []
    return ", ".join([command, *facts, *seeds, *(["transcribed"] if record.transcribed else [])])
