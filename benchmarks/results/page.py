"""The results page, with one row per target."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from benchmarks.harness.records import REPOSITORY, Judged, Record

RESULTS: Final = REPOSITORY / "benchmarks" / "RESULTS.md"

_INTRODUCTION: Final = """# Results

`python -m benchmarks.results` generates this page from the latest record of each benchmark in
`benchmarks/records/`. A record contains all figures of a run, its command and its machine.
[The decisions](../docs/decisions/index.md) describe the experiments behind the current code. The module of a
benchmark, such as `benchmarks/porting/limits.py` for `porting.limits`, describes its measurements;
`benchmarks/harness/run.py` defines the common rules. Records from before 2026-11-28 were transcribed from an
earlier version of this page; their commands are those of their commits.
"""

_HEAD: Final = ("| figure | value | target | status | commit |", "| --- | ---: | ---: | --- | --- |")


class Row(NamedTuple):
    """A target, with the latest record that contains it."""

    name: str
    target: Judged
    record: Record

    @property
    def what(self) -> str:
        """The description of the figure."""
        return self.target.what or self.name.replace("_", " ")

    @property
    def value(self) -> str:
        """The figure with few digits; empty if it was not measured."""
        figure = self.record.figures.get(self.name)
        return "" if figure is None else shown(figure)

    @property
    def asked(self) -> str:
        """The bounds, such as `at most 10`."""
        bounds = (("at least", self.target.min), ("at most", self.target.max))
        return ", ".join(f"{word} {shown(bound)}" for word, bound in bounds if bound is not None)

    @property
    def status(self) -> str:
        """Whether the target is met, and whether only a quick run has measured it."""
        if self.name not in self.record.figures:
            return "not measured"
        return ("met" if self.target.met else "missed") + (" (quick run)" if self.record.quick else "")


def page(records: Sequence[Record]) -> str:
    """Return RESULTS.md.

    Args:
        records: All records, oldest first.
    """
    rows = rows_of(records)
    counts = {
        status: sum(row.status.startswith(status) for row in rows) for status in ("met", "missed", "not")
    }
    summary = (
        f"Of the {len(rows)} targets, {counts['met']} are met, {counts['missed']} are missed and "
        f"{counts['not']} have not been measured under their current definition.\n"
    )
    parts = [_INTRODUCTION, summary]
    for group, in_group in groupby(rows, lambda row: row.record.benchmark.partition(".")[0]):
        parts.append(f"## {group}\n")
        for benchmark, own in groupby(in_group, lambda row: row.record.benchmark):
            parts.append(_section(benchmark, list(own)))
    return "\n".join(parts)


def missed_targets(records: Sequence[Record]) -> str:
    """Return a table of the missed targets."""
    missed = (row for row in rows_of(records) if row.status.startswith("missed"))
    cells = (f"| {row.record.benchmark} | {row.what} | {row.value} | {row.asked} |" for row in missed)
    return "\n".join(["| benchmark | figure | value | target |", "| --- | --- | ---: | ---: |", *cells])


def rows_of(records: Sequence[Record]) -> list[Row]:
    """Return the rows, sorted by benchmark, with the targets of the latest record for each network.

    A quick run counts only for figures that no full run has measured.
    """
    latest = {(record.benchmark, record.network, record.quick): record for record in records}
    fulls = {benchmark for benchmark, _, quick in latest if not quick}
    rows: dict[tuple[str, str], Row] = {}
    for record in sorted(latest.values(), key=lambda record: record.quick):
        for name, target in record.targets.items():
            row = rows.get((record.benchmark, name))
            if row is None and record.quick and record.benchmark in fulls:
                continue  # from an earlier definition
            if row is None or (name in record.figures and name not in row.record.figures):
                rows[record.benchmark, name] = Row(name, target, record)
    return sorted(rows.values(), key=lambda row: row.record.benchmark)


def shown(figure: float) -> str:
    """Return a figure with three significant digits, or rounded to an integer from 1,000 on."""
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
    """Return the command of a record, with the place and time of its run, in one line."""
    command = f"`{record.command}`" if record.command else "command unknown"
    where = record.machine.get("processor")
    facts = [
        f"commit {_commit(record)}",
        (record.date or "date unknown")[:10],
        *([str(where)] if where else []),
    ]
    seeds = [f"seeds {', '.join(map(str, record.seeds))}"] if record.seeds else []
    return ", ".join([command, *facts, *seeds, *(["transcribed"] if record.transcribed else [])])
