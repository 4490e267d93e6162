"""The results page is made from the records, with one row per target."""

import pytest

from benchmarks.harness.records import Judged, Record, read_records
from benchmarks.results.page import RESULTS, missed_targets, page, rows_of, shown


def record(date, figures, targets, **fields):
    judged = {
        name: Judged(**bounds, met=name in figures and figures[name] <= bounds["max"])
        for name, bounds in targets.items()
    }
    made = {"command": "python -m benchmarks.server.web", "commit": date, "machine": {}, "met": False}
    return Record(**{"benchmark": "server.web", **made, **fields}, date=date, figures=figures, targets=judged)


SPEED = {"page_ms": {"what": "a page, ms", "max": 10.0}}


def test_the_page_in_the_repository_matches_the_records():
    assert RESULTS.read_text() == page(read_records()), "run python -m benchmarks.results"


def test_a_row_has_name_value_target_and_status():
    assert "| a page, ms | 8 | at most 10 | met | 2026-01-01 |" in page(
        [record("2026-01-01", {"page_ms": 8.0}, SPEED)]
    )


def test_the_most_recent_record_counts():
    records = [
        record(date, {"page_ms": ms}, SPEED) for date, ms in (("2026-01-01", 8.0), ("2026-01-02", 12.0))
    ]
    (row,) = rows_of(records)
    assert (row.value, row.status) == ("12", "missed")
    assert missed_targets(records).splitlines()[2:] == ["| server.web | a page, ms | 12 | at most 10 |"]


def test_a_target_missing_from_the_most_recent_record_is_not_listed():
    records = [
        record("2026-01-01", {"old": 8.0}, {"old": {"max": 9.0}}),
        record("2026-01-02", {"page_ms": 1.0}, SPEED),
    ]
    assert [row.name for row in rows_of(records)] == ["page_ms"]


def test_records_of_several_networks_are_combined():
    targets = {"a_ms": {"max": 1.0}, "b_ms": {"max": 1.0}}
    records = [
        record("2026-01-01", {"a_ms": 0.5}, targets, network="a"),
        record("2026-01-02", {"b_ms": 2.0}, targets, network="b"),
    ]
    assert {row.name: row.status for row in rows_of(records)} == {"a_ms": "met", "b_ms": "missed"}


def test_a_quick_run_counts_only_without_a_full_one():
    quick = record("2026-01-02", {"page_ms": 1.0}, SPEED, quick=True)
    assert [row.status for row in rows_of([quick])] == ["met (quick run)"]
    assert [row.value for row in rows_of([record("2026-01-01", {"page_ms": 8.0}, SPEED), quick])] == ["8"]
    assert [row.status for row in rows_of([record("2026-01-01", {}, SPEED), quick])] == ["met (quick run)"]


def test_unmeasured_targets_are_marked():
    assert [row.status for row in rows_of([record("2026-01-01", {}, SPEED)])] == ["not measured"]


@pytest.mark.parametrize(
    ("figure", "expected"), [(0.0625, "0.0625"), (1.536, "1.54"), (48.1, "48.1"), (318_128.0, "318,128")]
)
def test_numbers_are_short(figure, expected):
    assert shown(figure) == expected
